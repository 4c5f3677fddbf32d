// A round: a draft, its verification, and the next draft ahead.
#pragma once

#include <set>

#include "joining.h"
#include "round_inputs.h"

namespace rounds {

// A round of a row a sequence. It deletes itself.
class Round {
 public:
  Round(Rounds& rounds, TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
      : rounds_(rounds), reply_(instance, request) {}

  void Start() {
    {
      std::lock_guard lock(rounds_.mutex);
      ++rounds_.running;
    }
    Guard([&] {
      id_ = reply_.Id();
      inputs_.Read(reply_.request);
      drafts_.resize(inputs_.count);
      claims_.resize(inputs_.count);
      auto fresh = Claim();
      if (!fresh.empty()) AskDraft(fresh);
    });
    Arrived();
  }

  // Nobody waits for it any longer: nothing more is asked for. Adds the calls of the draft engine that it waits for.
  // Under the lock.
  void Stop(std::set<std::string>* ids) {
    stopped_ = true;
    Uncount();
    for (const auto& [ahead, row] : claims_)
      if (ahead && !ahead->ended && ahead->Useless()) ids->insert(ahead->id);
  }

  bool Stopped() const { return stopped_; }

  // A draft that this waits for is here, or failed.
  void Arrived() {
    if (!--pending_) Verify();
  }

 private:
  // Take what was drafted ahead; the rows that have to be drafted now.
  std::vector<size_t> Claim() {
    std::vector<size_t> fresh;
    size_t claimed = 0;
    std::lock_guard lock(rounds_.mutex);
    rounds_.live[id_] = this;
    for (size_t i = 0; i < inputs_.count; ++i) {
      auto found = rounds_.ahead.find(inputs_.sequences[i]);
      if (found != rounds_.ahead.end()) {
        auto [ahead, row] = found->second;
        rounds_.ahead.erase(found);
        const Tokens& known = ahead->sequences[row];
        bool same = known == inputs_.Row(i);
        // One that is shorter than wanted now, too: drafts grow a round later, and none is made in vain.
        if (same && ahead->error.empty()) {
          claims_[i] = {ahead, row};
          ++claimed;
          begun_ = std::min(begun_, ahead->begun);
          if (!ahead->ended && (ahead->waiting.empty() || ahead->waiting.back() != this)) {
            ahead->waiting.push_back(this);
            ++pending_;
          }
          continue;
        }
      }
      if (inputs_.wanted[i] > 0) fresh.push_back(i);
    }
    // A new prompt's draft would hold up the drafts of many. It is made ahead of the next round, together with theirs.
    if (kMany * fresh.size() <= claimed) fresh.clear();
    return fresh;
  }

  // Raises Failure.
  void AskDraft(const std::vector<size_t>& rows) {
    std::vector<Input> inputs;
    for (const Input& each : inputs_.all) {
      if (!RoundInputs::IsEngines(each.name)) continue;
      bool some = rows.size() < inputs_.count;
      inputs.push_back(!some ? each : each.name == kIds ? inputs_.Ids(rows, &owned_) : owned_.Gather(each, rows));
    }
    Tokens lengths;
    for (size_t row : rows) lengths.push_back(inputs_.wanted[row]);
    inputs.push_back(owned_.Make(kWanted, TRITONSERVER_TYPE_INT32, {int64_t(rows.size()), 1}, lengths));
    ++pending_;
    begun_ = std::min(begun_, Now());
    try {
      EngineCall::Start(
          rounds_.caller, rounds_.draft, id_, inputs, NamesOf(rows.size()), [this, rows](Answer answer) {
            Guard([&] {
              auto found = answer.Rows(rows.size());
              for (size_t i = 0; i < rows.size(); ++i) drafts_[rows[i]] = TokensOf(found[i], inputs_.wanted[rows[i]]);
            });
            answer.responses.clear();
            Arrived();
          });
    } catch (...) {
      --pending_;
      throw;
    }
  }

  // All drafts are here: ask the target, with those who waited for that.
  void Verify() {
    drafted_ = Now();
    std::vector<Joining*> joining;
    {
      std::lock_guard lock(rounds_.mutex);
      if (stopped_ && error_.empty()) error_ = "the round was stopped";
      for (size_t i = 0; i < inputs_.count && error_.empty(); ++i)
        if (claims_[i].first) {
          Ahead& ahead = *claims_[i].first;
          error_ = ahead.error;
          if (error_.empty()) drafts_[i] = ahead.drafts[claims_[i].second];
        }
      group_.number = ++rounds_.group;
      ++rounds_.verifying;
      verifies_ = true;
      joining.swap(rounds_.joining);
    }
    const bool ready = error_.empty();
    std::vector<Joining*> alone;
    size_t rows = inputs_.count;
    for (Joining* call : joining) {
      const bool joins = ready && rows + call->count <= rounds_.rows && inputs_.IsAlike(call->inputs);
      if (joins) rows += call->count;
      (joins ? joined_ : alone).push_back(call);
    }
    group_.members += joined_.size();
    Rounds& rounds = rounds_;
    if (!ready || !Guard([&] { AskTarget(); })) Fail();  // this is gone
    for (Joining* call : alone) call->Start(rounds);
  }

  // Raises Failure.
  void AskTarget() {
    size_t rows = inputs_.count;
    for (size_t i = 0; i < inputs_.count; ++i) {
      drafts_[i].resize(std::min(drafts_[i].size(), size_t(std::max(0, inputs_.wanted[i]))));
      longest_ = std::max(longest_, drafts_[i].size());
    }
    const size_t longest = longest_;
    for (Joining* call : joined_) rows += call->count;
    std::vector<Input> inputs;
    for (const Input& each : inputs_.all)
      if (RoundInputs::IsEngines(each.name)) inputs.push_back(joined_.empty() ? each : WithJoined(each));
    inputs.push_back(owned_.Make(kWanted, TRITONSERVER_TYPE_INT32, {int64_t(rows), 1}, Tokens(rows, longest + 1)));
    if (longest) {
      // Made-up tokens fill up shorter drafts: what the target would not have chosen is refused.
      Tokens drafted;
      for (size_t i = 0; i < inputs_.count; ++i) {
        drafted.insert(drafted.end(), drafts_[i].begin(), drafts_[i].end());
        drafted.insert(drafted.end(), longest - drafts_[i].size(), inputs_.Row(i).back());
      }
      for (Joining* call : joined_) {
        const Input& ids = *Find(call->inputs, kIds);
        auto *tokens = Data<int32_t>(call->inputs, kIds, 0), *lengths = Data<int32_t>(call->inputs, kLengths, call->count);
        for (size_t i = 0; i < call->count; ++i)
          drafted.insert(drafted.end(), longest, tokens[i * ids.shape[1] + std::max(1, lengths[i]) - 1]);
      }
      inputs.push_back(
          owned_.Make(kDrafted, TRITONSERVER_TYPE_INT32, {int64_t(rows), int64_t(longest)}, drafted));
    }
    EngineCall::Start(
        rounds_.caller, rounds_.target, id_, inputs, NamesOf(rows),
        [this, rows](Answer answer) { Verified(std::move(answer), rows); });
  }

  // A tensor of the round's rows, then of those that join it. Raises Failure.
  Input WithJoined(const Input& own) {
    std::vector<const Input*> all{&own};
    for (Joining* call : joined_) all.push_back(Find(call->inputs, own.name));
    Shape shape = own.shape;
    for (size_t i = 1; i < all.size(); ++i) {
      shape[0] += all[i]->shape[0];
      if (own.name == kIds) shape[1] = std::max(shape[1], all[i]->shape[1]);
    }
    std::vector<char> data;
    for (const Input* each : all)
      for (int64_t row = 0; row < each->shape[0]; ++row) {
        size_t step = Owned::One(*each).bytes / each->shape[0];
        auto* from = static_cast<const char*>(Owned::One(*each).data) + row * step;
        data.insert(data.end(), from, from + step);
        if (own.name == kIds) data.insert(data.end(), (shape[1] - each->shape[1]) * sizeof(int32_t), 0);
      }
    return owned_.Make(own.name.c_str(), own.type, std::move(shape), data);
  }

  void Verified(Answer answer, size_t count) {
    uint64_t verified = Now();
    std::vector<Row> rows;
    if (!Guard([&] {
          rows = answer.Rows(count);
          std::vector<Tokens> tokens;
          for (const Row& row : rows) tokens.push_back(TokensOf(row, longest_ + 1));
          if (!stopped_) DraftAhead(tokens);
        })) {
      answer.responses.clear();
      return Fail();
    }
    End();
    // First the first tokens of new prompts.
    auto next = rows.begin() + inputs_.count;
    for (Joining* call : joined_) {
      std::vector<Row> own(next, next + call->count);
      next += call->count;
      if (stopped_)  // the engine may have ended their rows, too: they have the round's id
        call->Start(rounds_);
      else
        call->Finish({}, [&](const Answer&) { return own; }, group_);
    }
    reply_.Send(inputs_.count, [&](TRITONBACKEND_Response* response) {
      Stack(response, {rows.begin(), rows.begin() + inputs_.count}, {kTokens, kCount});
      group_.Write(response, inputs_.count);
      WriteDrafts(response);
      Times(response, kDraftTime, DraftTime());
      Times(response, kTargetTime, verified - drafted_);
    });
    answer.responses.clear();
    reply_.Release();
    delete this;
  }

  void WriteDrafts(TRITONBACKEND_Response* response) const {
    int64_t longest = 0, rows = inputs_.count;
    for (const Tokens& draft : drafts_) longest = std::max<int64_t>(longest, draft.size());
    auto* drafts = reinterpret_cast<int32_t*>(
        OutputOf(response, kDraftIds, TRITONSERVER_TYPE_INT32, {rows, longest}));
    auto* lengths = reinterpret_cast<int32_t*>(OutputOf(response, kDraftLength, TRITONSERVER_TYPE_INT32, {rows, 1}));
    for (const Tokens& draft : drafts_) {
      std::fill(std::copy(draft.begin(), draft.end(), drafts), drafts + longest, 0);
      drafts += longest;
      *lengths++ = draft.size();
    }
  }

  // What the draft engine took for this; 0: nothing was drafted, some of it ahead and some not, or more.
  int64_t DraftTime() const {
    uint64_t ended = 0;
    size_t claimed = 0, drafted = 0;
    for (size_t i = 0; i < inputs_.count; ++i) {
      drafted += inputs_.wanted[i] > 0;
      if (!claims_[i].first) continue;
      if (claims_[i].first->wanted[claims_[i].second] != inputs_.wanted[i]) return 0;
      ++claimed;
      ended = std::max(ended, claims_[i].first->ended);
    }
    if (!drafted || (claimed && claimed < drafted)) return 0;
    return (claimed ? ended : drafted_) - begun_;
  }

  void Times(TRITONBACKEND_Response* response, const char* name, int64_t ns) const {
    auto* times = reinterpret_cast<int64_t*>(
        OutputOf(response, name, TRITONSERVER_TYPE_INT64, {int64_t(inputs_.count), 1}));
    std::fill(times, times + inputs_.count, ns);
  }

  // Ask for the next drafts, of the sequences that go on, after what the target made of each. Raises Failure.
  void DraftAhead(const std::vector<Tokens>& verified) {
    std::vector<size_t> goes_on;
    Tokens lengths, wanted, least;
    auto made = std::make_shared<Ahead>();
    made->id = id_ + ".ahead";
    const Input* min_tokens = Find(inputs_.all, kLeast);
    auto* asked_least = min_tokens ? Data<int32_t>(inputs_.all, kLeast, inputs_.count) : nullptr;
    size_t width = 0;
    for (size_t i = 0; i < inputs_.count; ++i) {
      const Tokens& tokens = verified[i];
      const Tokens& draft = drafts_[i];
      size_t kept = std::mismatch(draft.begin(), draft.end(), tokens.begin(), tokens.end()).first - draft.begin();
      int64_t next = std::min<int64_t>(inputs_.wanted[i], inputs_.most[i] - int64_t(tokens.size()));
      if (next < 1 || tokens.size() <= kept) continue;  // without a token of the target's own the text has ended
      Tokens sequence = inputs_.Row(i);
      sequence.insert(sequence.end(), tokens.begin(), tokens.end());
      width = std::max(width, sequence.size());
      goes_on.push_back(i);
      lengths.push_back(sequence.size());
      wanted.push_back(next);
      if (asked_least) least.push_back(std::max<int64_t>(0, asked_least[i] - int64_t(tokens.size())));
      made->sequences.push_back(std::move(sequence));
    }
    if (goes_on.empty()) return;
    Tokens ids;
    for (const Tokens& sequence : made->sequences) {
      ids.insert(ids.end(), sequence.begin(), sequence.end());
      ids.insert(ids.end(), width - sequence.size(), 0);
    }
    const int64_t count = goes_on.size();
    std::vector<Input> inputs;
    for (const Input& each : inputs_.all)
      if (RoundInputs::IsEngines(each.name) && each.name != kIds && each.name != kLengths && each.name != kLeast)
        inputs.push_back(made->owned.Gather(each, goes_on));
    inputs.push_back(made->owned.Make(kIds, TRITONSERVER_TYPE_INT32, {count, int64_t(width)}, ids));
    inputs.push_back(made->owned.Make(kLengths, TRITONSERVER_TYPE_INT32, {count, 1}, lengths));
    inputs.push_back(made->owned.Make(kWanted, TRITONSERVER_TYPE_INT32, {count, 1}, wanted));
    made->wanted = std::move(wanted);
    if (asked_least) inputs.push_back(made->owned.Make(kLeast, TRITONSERVER_TYPE_INT32, {count, 1}, least));
    {
      std::lock_guard lock(rounds_.mutex);
      ForgetStale();
      for (int64_t i = 0; i < count; ++i) rounds_.ahead[inputs_.sequences[goes_on[i]]] = {made, size_t(i)};
      ++rounds_.flying;
      rounds_.latest = Now();
    }
    auto failed = Tried([&] {
      EngineCall::Start(
          rounds_.caller, rounds_.draft, made->id, inputs, NamesOf(goes_on.size()),
          [&rounds = rounds_, made](Answer answer) { rounds.Drafted(made, std::move(answer)); });
    });
    if (failed) rounds_.Drafted(made, {});  // the next round asks for itself, and is told
  }

  // Under the lock.
  void ForgetStale() {
    const uint64_t now = Now();
    for (auto each = rounds_.ahead.begin(); each != rounds_.ahead.end();) {
      const Ahead& ahead = *each->second.first;
      each = ahead.ended && ahead.ended + kStale < now ? rounds_.ahead.erase(each) : std::next(each);
    }
  }

  // No verification of it is to be expected. Under the lock.
  void Uncount() {
    rounds_.running -= counted_;
    counted_ = false;
  }

  // It is over for others.
  void End() {
    {
      std::lock_guard lock(rounds_.mutex);
      if (error_.empty() && begun_ != kNever) rounds_.round = Now() - begun_;
      Uncount();
      rounds_.verifying -= verifies_;
      auto found = rounds_.live.find(id_);
      if (found != rounds_.live.end() && found->second == this) rounds_.live.erase(found);
    }
    rounds_.LetGo();
  }

  // Answer with the error, as the last of all; who joined tries again by himself.
  void Fail() {
    End();
    for (Joining* call : joined_) call->Start(rounds_);
    reply_.Fail(Failure(error_));
    reply_.Release();
    delete this;
  }

  // Keep what `action` raises; whether it raised nothing.
  template <class Action>
  bool Guard(Action action) {
    try {
      action();
      return true;
    } catch (const std::exception& failure) {
      std::lock_guard lock(rounds_.mutex);
      error_ = failure.what();
      return false;
    }
  }

  static constexpr uint64_t kNever = ~0ull;

  Rounds& rounds_;
  Reply reply_;
  std::string id_;
  RoundInputs inputs_;
  Owned owned_;
  std::vector<Tokens> drafts_;
  std::vector<std::pair<std::shared_ptr<Ahead>, size_t>> claims_;
  std::string error_;
  std::atomic<int> pending_{1};
  std::atomic<bool> stopped_{false};
  bool counted_ = true, verifies_ = false;
  uint64_t begun_ = kNever, drafted_ = 0;
  size_t longest_ = 0;  // of the drafts that are verified
  Group group_;
  std::vector<Joining*> joined_;
};

}  // namespace rounds
