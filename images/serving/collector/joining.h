// Calls of the target alone, which join a verification or go by themselves.
#pragma once

#include "round_state.h"

namespace rounds {

// What was verified together: so many calls.
struct Group {
  int64_t number = 0;
  int32_t members = 1;

  void Write(TRITONBACKEND_Response* response, size_t count) const {
    const Shape shape{int64_t(count), 1};
    auto* numbers = reinterpret_cast<int64_t*>(OutputOf(response, kGroup, TRITONSERVER_TYPE_INT64, shape));
    auto* sizes = reinterpret_cast<int32_t*>(OutputOf(response, kMembers, TRITONSERVER_TYPE_INT32, shape));
    std::fill(numbers, numbers + count, number);
    std::fill(sizes, sizes + count, members);
  }
};

// A call of the target alone. It deletes itself.
class Joining {
 public:
  Joining(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, std::vector<Input> inputs)
      : inputs(std::move(inputs)), count(this->inputs.at(0).shape.at(0)), reply_(instance, request) {}

  // By itself.
  void Start(Rounds& rounds) {
    auto failure = Tried([&] {
      EngineCall::Start(
          rounds.caller, rounds.target, reply_.Id(), inputs, NamesOf(count),
          [this](Answer answer) { Finish(std::move(answer), [this](const Answer& own) { return Read(own); }); });
    });
    if (failure) Finish({}, [&](const Answer&) -> std::vector<Row> { throw *failure; });
  }

  // Answer with the rows that `read` makes of the answer, or what it raises. The last of all.
  template <class Read>
  void Finish(Answer answer, Read read, Group group = {}) {
    reply_.Send(count, [&](TRITONBACKEND_Response* response) {
      Stack(response, read(answer), {kTokens, kCount});
      group.Write(response, count);
    });
    answer.responses.clear();
    reply_.Release();
    delete this;
  }

  const std::vector<Input> inputs;
  const size_t count;
  const uint64_t since = Now();

 private:
  // Raises Failure.
  std::vector<Row> Read(const Answer& own) const {
    auto rows = own.Rows(count);
    auto* asked = Data<int32_t>(inputs, kWanted, count);
    for (size_t i = 0; i < count; ++i) TokensOf(rows[i], asked[i]);
    return rows;
  }

  Reply reply_;
};

inline void Rounds::LetGoLate() {
  std::vector<Joining*> late;
  {
    std::lock_guard lock(mutex);
    const uint64_t now = Now();
    auto waits = [&](Joining* call) { return now < call->since + kYoung + 2 * round; };
    auto first = std::stable_partition(joining.begin(), joining.end(), waits);
    late.assign(first, joining.end());
    joining.erase(first, joining.end());
  }
  for (Joining* call : late) call->Start(*this);
}

inline void Rounds::LetGo(bool always) {
  std::vector<Joining*> calls;
  {
    std::lock_guard lock(mutex);
    if (always || !Expects()) calls.swap(joining);
  }
  for (Joining* call : calls) call->Start(*this);
}

}  // namespace rounds
