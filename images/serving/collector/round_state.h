// What a model instance of rounds knows: drafts made ahead, calls that wait for a verification, rounds under way.
#pragma once

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "round_tensors.h"

namespace rounds {

constexpr uint64_t kYoung = 250'000'000;    // ns in which a draft ahead should end, and a verification follow it
constexpr uint64_t kStale = 1'000'000'000;  // ns after which nobody is thought to ask for a draft: the sequence is over
// Rows with a draft made ahead for which one without gives up its own: it loses the draft, they a few steps' time.
constexpr size_t kMany = 3;

class Round;

// A draft of the next round, which somebody may ask for.
struct Ahead {
  std::string id;  // of its call
  uint64_t begun = Now(), ended = 0;  // 0: it is under way
  std::vector<Tokens> sequences, drafts;
  Tokens wanted;  // tokens of each draft
  std::string error;
  std::vector<Round*> waiting;
  Owned owned;

  // Whether all who wait for it were stopped. Under the lock.
  bool Useless() const;
};

class Joining;

// A model instance's state.
class Rounds {
 public:
  // Raises Failure.
  explicit Rounds(TRITONBACKEND_Model* model)
      : caller(model),
        target(Behind(model, "_rounds", "")),
        draft(Draft(target)),
        rows(Rows(model)),
        watch_([this] { Watch(); }) {}

  // Drafts ahead that are under way use this.
  ~Rounds() {
    {
      std::unique_lock lock(mutex);
      idle.wait(lock, [&] { return !flying && !leaving; });
      closed_ = true;
    }
    closes_.notify_all();
    watch_.join();
  }

  // Let go of what waits for a verification, unless something is under way that will bring one. Not under the lock.
  void LetGo(bool always = false);

  // A draft made ahead has ended.
  void Drafted(const std::shared_ptr<Ahead>& made, Answer answer);

  // Those that have waited for much longer than rounds take.
  void LetGoLate();

  // Whether a verification is to be expected. Under the lock.
  bool Expects() const { return running || (flying && Now() < latest + kYoung); }

  const Caller caller;
  const std::string target, draft;
  const size_t rows;  // of a call, at most

  std::mutex mutex;  // of what follows
  std::condition_variable idle;
  std::unordered_map<int64_t, std::pair<std::shared_ptr<Ahead>, size_t>> ahead;  // by sequence, with its row there
  std::unordered_map<std::string, Round*> live;  // by request id
  std::vector<Joining*> joining;
  uint64_t round = 0;  // ns that the latest round took
  int64_t group = 0;
  int running = 0;    // rounds that are under way, and not stopped
  uint64_t latest = 0;  // when the latest draft ahead began
  int verifying = 0;  // rounds that the target has
  int flying = 0;     // drafts ahead that are under way
  int leaving = 0;    // those that have ended, whose callback has not

 private:
  // The draft engine of the target tensorrt_llm or tensorrt_llm_engine. Raises Failure.
  static std::string Draft(const std::string& target) {
    const std::string base = "tensorrt_llm";
    if (target.compare(0, base.size(), base)) throw Failure(target + "_rounds: the engine is named tensorrt_llm...");
    return base + "_draft" + target.substr(base.size());
  }

  // `max_batch_size` of the configuration, which is the engine's. Raises Failure.
  static size_t Rows(TRITONBACKEND_Model* model) {
    auto config = Made<Message>([&](auto** made) { return TRITONBACKEND_ModelConfig(model, 1, made); });
    const char* text;
    size_t bytes, rows = 0;
    Check(TRITONSERVER_MessageSerializeToJson(config.get(), &text, &bytes));
    constexpr std::string_view key = "\"max_batch_size\":";
    const std::string_view json(text, bytes);
    if (size_t at = json.find(key); at != json.npos) std::from_chars(text + at + key.size(), text + bytes, rows);
    return std::max<size_t>(1, rows);
  }

  // A draft may take long, or never end, and so may a verification: who waits for another one then goes by himself.
  void Watch() {
    std::unique_lock lock(mutex);
    while (!closes_.wait_for(lock, std::chrono::nanoseconds(kYoung), [&] { return closed_; })) {
      lock.unlock();
      LetGoLate();
      lock.lock();
    }
  }

  bool closed_ = false;  // under the lock
  std::condition_variable closes_;
  std::thread watch_;  // the last of all: it uses the others
};

}  // namespace rounds
