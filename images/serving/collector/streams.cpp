// A Triton backend: calls of a decoupled engine whose tokens can be read while the engine generates them.
//
// Calls with several responses can lock up Triton's Python backend (docs/design/triton-backend.md), so that it cannot
// make a streaming call. A model X_streams makes them for it: it calls the engine X, and answers each call once.
//
//   stream_caller int64[1, 1]   who reads: all calls of one name are read together
//   stream_number int64[1, 1]   names a call in what is read
//   stream_wait_ms int32[1, 1]  makes the call a read; without it, it opens a stream
//
// To *open* a stream takes the engine's own tensors, `streaming` among them. They go on with the same request id, by
// which the engine itself can be asked to stop. The answer comes when the engine has ended: all tokens, or its error.
// To *read* waits until the engine has answered any stream of this caller, for so many milliseconds at most, and answers
// what came since the last read, of all of them: stream_number int64[1, n], stream_start int32[1, n] (tokens before
// these), stream_length int32[1, n], and output_ids int32[1, 1, all of them]. So 64 streams cost who reads one call for
// each step of the engine. What has ended is not read any more: its answer has all.
//
// Engines hold locks while they respond, so a response is only kept there; a thread of ours answers.

#include <condition_variable>
#include <thread>

#include "engine_call.h"
#include "reply.h"
#include "round_tensors.h"

namespace streams {

using namespace backend;
using rounds::Data;
using rounds::Find;
using rounds::kCount;
using rounds::kTokens;
using rounds::Tokens;
using rounds::TokensOf;

constexpr const char *kCaller = "stream_caller", *kNumber = "stream_number", *kWait = "stream_wait_ms";
constexpr const char *kStart = "stream_start", *kLength = "stream_length";
constexpr uint64_t kGather = 1'000'000;      // ns in which an engine's responses of one step come
constexpr uint64_t kIdle = 1'000'000'000;    // ns: nothing is due before something comes

class Stream;

// A request that waits for tokens. It deletes itself.
struct Read {
  Read(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const std::vector<Input>& inputs)
      : reply(instance, request), until(Now() + std::max(0, *Data<int32_t>(inputs, kWait, 1)) * 1'000'000ull) {}

  Reply reply;
  const uint64_t until;
};

// What came of a stream since the last read.
struct Chunk {
  int64_t number;
  int32_t start;
  Tokens tokens;
};

struct Reader {
  Read* waits = nullptr;
  std::vector<Stream*> fresh;  // those with tokens that were not read
  size_t open = 0;
  uint64_t since = 0;  // when the first of `fresh` came

  // When to answer who waits: when all streams have tokens of this step, or those that will have had time to come.
  uint64_t Due() const {
    if (fresh.empty()) return waits->until;
    return fresh.size() >= open ? 0 : since + kGather;
  }
};

// A model instance's state.
class Streams {
 public:
  // Raises Failure.
  explicit Streams(TRITONBACKEND_Model* model)
      : caller(model), engine(Behind(model, "_streams", "")), thread_([this] { Serve(); }) {}

  // No request is under way any more.
  ~Streams() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    due_.notify_one();
    thread_.join();
  }

  void Opened(Stream& stream);
  void Came(Stream& stream, const Tokens& tokens);
  void Ended(Stream& stream);

  void Wait(int64_t caller, Read* read) {
    Read* before = nullptr;
    {
      std::lock_guard lock(mutex_);
      std::swap(before, readers_[caller].waits);
      readers_[caller].waits = read;
    }
    due_.notify_one();
    if (before) Answer(before, {});  // there is one reader: who asks again has given that up
  }

  const Caller caller;
  const std::string engine;

 private:
  void Serve() {
    std::unique_lock lock(mutex_);
    while (!closed_) {
      std::vector<std::pair<Read*, std::vector<Chunk>>> reads;
      std::vector<Stream*> ended;
      const uint64_t now = Now(), next = Collect(now, reads);
      ended.swap(ended_);
      if (reads.empty() && ended.empty()) {
        due_.wait_for(lock, std::chrono::nanoseconds(next - now));
        continue;
      }
      lock.unlock();
      for (auto& [read, chunks] : reads) Answer(read, chunks);
      for (Stream* stream : ended) Finish(stream);
      lock.lock();
    }
  }

  // The reads that are due, with what they get; when the next one is. Under the lock.
  uint64_t Collect(uint64_t now, std::vector<std::pair<Read*, std::vector<Chunk>>>& reads);

  static void Answer(Read* read, const std::vector<Chunk>& chunks);

  static void Finish(Stream* stream);

  std::mutex mutex_;  // of what follows
  std::condition_variable due_;
  std::map<int64_t, Reader> readers_;  // by caller
  std::vector<Stream*> ended_;
  bool closed_ = false;
  std::thread thread_;  // the last of all: it uses the others
};

// A streaming call of the engine. It deletes itself.
class Stream {
 public:
  // Raises Failure.
  Stream(
      Streams& streams, TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
      std::vector<Input> inputs)
      : caller(*Data<int64_t>(inputs, kCaller, 1)),
        number(*Data<int64_t>(inputs, kNumber, 1)),
        streams_(streams),
        inputs_(std::move(inputs)),
        wanted_(*Data<int32_t>(inputs_, rounds::kWanted, 1)),
        reply_(instance, request) {
    if (inputs_.at(0).shape.at(0) != 1) throw Failure("a stream is of one sequence: send one row");
  }

  void Start() {
    std::vector<Input> own;
    for (const Input& each : inputs_)
      if (each.name != kCaller && each.name != kNumber) own.push_back(each);
    streams_.Opened(*this);
    auto failure = Tried([&] {
      EngineCall::Start(
          streams_.caller, streams_.engine, reply_.Id(), own, {kTokens, kCount},
          [this](Answer) { streams_.Ended(*this); }, [this](EngineResponse response) { Take(response.get()); });
    });
    if (!failure) return;  // this may be gone already
    Keep(*failure);
    streams_.Ended(*this);
  }

  // Answer all that came, or what went wrong. The last of all.
  void Finish() {
    reply_.Send(1, [&](TRITONBACKEND_Response* response) {
      if (failure_) throw *failure_;
      const int64_t count = tokens.size();
      auto* ids = OutputOf(response, kTokens, TRITONSERVER_TYPE_INT32, {1, 1, count});
      std::memcpy(ids, tokens.data(), count * sizeof(int32_t));
      *reinterpret_cast<int32_t*>(OutputOf(response, kCount, TRITONSERVER_TYPE_INT32, {1, 1})) = count;
    });
    reply_.Release();
    delete this;
  }

  const int64_t caller, number;
  Tokens tokens;    // under the lock, until the engine has ended
  size_t read = 0;  // of them; under the lock

 private:
  // A response of the engine.
  void Take(TRITONSERVER_InferenceResponse* response) {
    auto failure = Tried([&] {
      Row row = Answer::Read(response);
      if (!row.empty()) streams_.Came(*this, TokensOf(row, wanted_ - int64_t(tokens.size())));
    });
    if (failure) Keep(*failure);
  }

  void Keep(const Failure& failure) {
    if (!failure_) failure_ = failure;
  }

  Streams& streams_;
  const std::vector<Input> inputs_;
  const int64_t wanted_;
  std::optional<Failure> failure_;  // the first
  Reply reply_;
};

void Streams::Opened(Stream& stream) {
  std::lock_guard lock(mutex_);
  ++readers_[stream.caller].open;
}

void Streams::Came(Stream& stream, const Tokens& tokens) {
  bool due;
  {
    std::lock_guard lock(mutex_);
    Reader& reader = readers_[stream.caller];
    if (reader.fresh.empty()) reader.since = Now();
    if (stream.read == stream.tokens.size() && !tokens.empty()) reader.fresh.push_back(&stream);
    stream.tokens.insert(stream.tokens.end(), tokens.begin(), tokens.end());
    due = reader.waits && (reader.fresh.size() == 1 || reader.fresh.size() >= reader.open);
  }
  if (due) due_.notify_one();
}

void Streams::Ended(Stream& stream) {
  {
    std::lock_guard lock(mutex_);
    Reader& reader = readers_[stream.caller];
    --reader.open;
    reader.fresh.erase(std::remove(reader.fresh.begin(), reader.fresh.end(), &stream), reader.fresh.end());
    if (!reader.open && !reader.waits) readers_.erase(stream.caller);
    ended_.push_back(&stream);
  }
  due_.notify_one();
}

uint64_t Streams::Collect(uint64_t now, std::vector<std::pair<Read*, std::vector<Chunk>>>& reads) {
  uint64_t next = now + kIdle;
  for (auto each = readers_.begin(); each != readers_.end();) {
    Reader& reader = each->second;
    const uint64_t due = reader.waits ? reader.Due() : next;
    if (now < due) {
      next = std::min(next, due);
      ++each;
      continue;
    }
    reads.emplace_back(reader.waits, std::vector<Chunk>());
    for (Stream* stream : reader.fresh) {
      auto from = stream->tokens.begin() + stream->read;
      reads.back().second.push_back({stream->number, int32_t(stream->read), Tokens(from, stream->tokens.end())});
      stream->read = stream->tokens.size();
    }
    reader.fresh.clear();
    reader.waits = nullptr;
    each = reader.open ? std::next(each) : readers_.erase(each);
  }
  return next;
}

void Streams::Answer(Read* read, const std::vector<Chunk>& chunks) {
  read->reply.Send(1, [&](TRITONBACKEND_Response* response) {
    const int64_t count = chunks.size();
    int64_t total = 0;
    for (const Chunk& chunk : chunks) total += chunk.tokens.size();
    auto* numbers = reinterpret_cast<int64_t*>(OutputOf(response, kNumber, TRITONSERVER_TYPE_INT64, {1, count}));
    auto* starts = reinterpret_cast<int32_t*>(OutputOf(response, kStart, TRITONSERVER_TYPE_INT32, {1, count}));
    auto* lengths = reinterpret_cast<int32_t*>(OutputOf(response, kLength, TRITONSERVER_TYPE_INT32, {1, count}));
    auto* ids = reinterpret_cast<int32_t*>(OutputOf(response, kTokens, TRITONSERVER_TYPE_INT32, {1, 1, total}));
    for (const Chunk& chunk : chunks) {
      *numbers++ = chunk.number;
      *starts++ = chunk.start;
      *lengths++ = chunk.tokens.size();
      ids = std::copy(chunk.tokens.begin(), chunk.tokens.end(), ids);
    }
  });
  read->reply.Release();
  delete read;
}

void Streams::Finish(Stream* stream) { stream->Finish(); }

void Take(Streams& streams, TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  auto failure = Tried([&] {
    auto inputs = InputsOf(request);
    if (Find(inputs, kWait)) {
      const int64_t caller = *Data<int64_t>(inputs, kCaller, 1);
      return streams.Wait(caller, new Read(instance, request, inputs));
    }
    (new Stream(streams, instance, request, std::move(inputs)))->Start();
  });
  if (!failure) return;
  Reply reply(instance, request);
  reply.Fail(*failure);
  reply.Release();
}

}  // namespace streams

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Initialize<streams::Streams>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Finalize<streams::Streams>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  return backend::Execute<streams::Streams>(
      instance, requests, count, [&](auto& state, auto* request) { streams::Take(state, instance, request); });
}
}
