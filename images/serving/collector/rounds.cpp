// A Triton backend: whole rounds of the speculative BLS, draft and verification, in the server.
//
// A model X_rounds calls the engine X, and the draft engine beside it. A call makes a round for a row a sequence: the
// draft engine drafts, the target verifies what it drafted, and both answers go back together. While who asked reads
// them, the draft engine is at work on the next round already (`Ahead`): the next call for a sequence takes its draft
// from there, if it is about the same tokens. So neither engine waits for a process of Python between its calls. A new
// row among many that were drafted ahead has no draft in its first round, and is drafted ahead with them for the next.
//
//   round_sequence int64[B, 1]      names a row's sequence, for as long as it lasts
//   round_draft_length int32[B, 1]  tokens to draft
//   round_most int32[B, 1]          the longest draft that would make sense; 0: nothing is drafted ahead
//   input_ids, input_lengths and all others go to both engines as they are.
//
// A call without them is of the target alone. Where a round is under way it joins the next verification (`Joining`), so
// that the engine takes both into one step: made-up draft tokens fill it up, and the answer may be longer than asked.
// Where one verification is in the engine's queue already, behind another, or has as many rows as a call may have, it
// follows at once, into the same step.
// `stop` ends the calls with its id in both engines, and lets go of all that waits.
// What was verified together says so: `round_group` int64[B, 1] and `round_members` int32[B, 1], the calls of a group.
//
// All goes on in the threads of whoever brings a response. One of ours looks for calls that wait for a draft or a
// verification which does not end.

#include "ahead.h"

namespace rounds {

// A request with `stop`, passed on to both engines. It deletes itself.
class Stop {
 public:
  Stop(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, std::vector<Input> inputs)
      : inputs_(std::move(inputs)), reply_(instance, request) {}

  void Start(Rounds& rounds) {
    auto ignored = Tried([&] {  // the calls' own answers tell how they ended
      const std::string id = reply_.Id();
      std::set<std::string> drafts{id};
      {
        std::lock_guard lock(rounds.mutex);
        auto found = rounds.live.find(id);
        if (found != rounds.live.end()) found->second->Stop(&drafts);
      }
      Ask(rounds, rounds.target, id);
      for (const auto& each : drafts) Ask(rounds, rounds.draft, each);
    });
    rounds.LetGo(true);
    End();
  }

 private:
  void Ask(Rounds& rounds, const std::string& engine, const std::string& id) {
    ++open_;
    auto failed = Tried([&] {
      EngineCall::Start(rounds.caller, engine, id, inputs_, {kTokens}, [this](Answer answer) {
        answer.responses.clear();
        End();
      });
    });
    if (failed) --open_;
  }

  // Whatever the engines say: the calls' own answers tell how they ended.
  void End() {
    if (--open_) return;
    reply_.Send(1, [](TRITONBACKEND_Response*) {});
    reply_.Release();
    delete this;
  }

  const std::vector<Input> inputs_;
  Reply reply_;
  std::atomic<int> open_{1};
};

void Take(Rounds& rounds, TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  std::vector<Input> inputs;
  bool stops = false;
  auto failure = Tried([&] {
    inputs = InputsOf(request);
    stops = Find(inputs, kStop) && *Data<bool>(inputs, kStop, 1);
  });
  if (failure) {
    Reply reply(instance, request);
    reply.Fail(*failure);
    return reply.Release();
  }
  if (stops) return (new Stop(instance, request, std::move(inputs)))->Start(rounds);
  if (Find(inputs, kSequence)) return (new Round(rounds, instance, request))->Start();
  auto* call = new Joining(instance, request, std::move(inputs));
  {
    std::lock_guard lock(rounds.mutex);
    if (rounds.Expects() && rounds.verifying < 2) return rounds.joining.push_back(call);
  }
  call->Start(rounds);
}

}  // namespace rounds

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Initialize<rounds::Rounds>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Finalize<rounds::Rounds>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  return backend::Execute<rounds::Rounds>(
      instance, requests, count, [&](auto& state, auto* request) { rounds::Take(state, instance, request); });
}
}
