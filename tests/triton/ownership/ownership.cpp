// Our backends on a Triton whose functions fail, one after the other: whatever happens, all that is theirs is freed once,
// and each request is given back once.
#include "fake_triton.h"

#define TRITONBACKEND_ModelInstanceInitialize CollectorInitialize
#define TRITONBACKEND_ModelInstanceExecute CollectorExecute
#define TRITONBACKEND_ModelInstanceFinalize CollectorFinalize
#include "../../../images/serving/collector/collector.cpp"
#undef TRITONBACKEND_ModelInstanceInitialize
#undef TRITONBACKEND_ModelInstanceExecute
#undef TRITONBACKEND_ModelInstanceFinalize
#define TRITONBACKEND_ModelInstanceInitialize StreamsInitialize
#define TRITONBACKEND_ModelInstanceExecute StreamsExecute
#define TRITONBACKEND_ModelInstanceFinalize StreamsFinalize
#include "../../../images/serving/collector/streams.cpp"
#undef TRITONBACKEND_ModelInstanceInitialize
#undef TRITONBACKEND_ModelInstanceExecute
#undef TRITONBACKEND_ModelInstanceFinalize
#define TRITONBACKEND_ModelInstanceInitialize RoundsInitialize
#define TRITONBACKEND_ModelInstanceExecute RoundsExecute
#define TRITONBACKEND_ModelInstanceFinalize RoundsFinalize
#include "../../../images/serving/collector/rounds.cpp"

namespace {

using fake::Tensor;
using Values = std::vector<int32_t>;

template <class T>
Tensor Of(TRITONSERVER_DataType type, std::vector<int64_t> shape, const std::vector<T>& values) {
  auto* bytes = reinterpret_cast<const char*>(values.data());
  return {type, std::move(shape), {bytes, bytes + values.size() * sizeof(T)}};
}

Tensor Ints(std::vector<int64_t> shape, const Values& values) {
  return Of(TRITONSERVER_TYPE_INT32, std::move(shape), values);
}

using Inputs = std::vector<std::pair<std::string, Tensor>>;

// What every engine takes, of so many rows, each of so many tokens.
Inputs Call(int64_t rows, int64_t tokens, int32_t wanted) {
  return {
      {"input_ids", Ints({rows, tokens}, Values(rows * tokens, 7))},
      {"input_lengths", Ints({rows, 1}, Values(rows, tokens))},
      {"request_output_len", Ints({rows, 1}, Values(rows, wanted))}};
}

Inputs Round(int64_t tokens) {
  Inputs inputs = Call(2, tokens, 1);
  inputs.pop_back();
  inputs.emplace_back("round_sequence", Of<int64_t>(TRITONSERVER_TYPE_INT64, {2, 1}, {1, 2}));
  inputs.emplace_back("round_draft_length", Ints({2, 1}, {2, 2}));
  inputs.emplace_back("round_most", Ints({2, 1}, {8, 8}));
  return inputs;
}

Inputs Opening() {
  Inputs inputs = Call(1, 3, 4);
  inputs.emplace_back("stream_caller", Of<int64_t>(TRITONSERVER_TYPE_INT64, {1, 1}, {5}));
  inputs.emplace_back("stream_number", Of<int64_t>(TRITONSERVER_TYPE_INT64, {1, 1}, {6}));
  return inputs;
}

Inputs Reading() {
  return {
      {"stream_caller", Of<int64_t>(TRITONSERVER_TYPE_INT64, {1, 1}, {5})},
      {"stream_wait_ms", Ints({1, 1}, {100})}};
}

Inputs Stopping() {
  Inputs inputs = Call(1, 1, 1);
  inputs.emplace_back("stop", Of<char>(TRITONSERVER_TYPE_BOOL, {1, 1}, {1}));
  return inputs;
}

// A response of an engine's with a row, which has its index where there are several.
TRITONSERVER_InferenceResponse* Respond(TRITONSERVER_InferenceRequest& request, int32_t row, int64_t rows, bool fails) {
  auto* response = fake::Born(new TRITONSERVER_InferenceResponse(), "an engine's response");
  response->allocator = request.allocator;
  response->failed = fails;
  const int32_t wanted = reinterpret_cast<int32_t*>(request.inputs["request_output_len"].data.data())[row];
  response->outputs["output_ids"] = Ints({1, 1, wanted}, Values(wanted, 7));
  response->outputs["sequence_length"] = Ints({1, 1}, {wanted});
  if (rows > 1) response->outputs["batch_index"] = Ints({1, 1}, {row});
  for (auto& [name, tensor] : response->outputs) {
    void *buffer, *user;
    TRITONSERVER_MemoryType memory;
    int64_t id;
    backend::Check(request.allocator->allocate(
        nullptr, name.c_str(), tensor.data.size(), TRITONSERVER_MEMORY_CPU, 0, nullptr, &buffer, &user, &memory, &id));
    std::memcpy(buffer, tensor.data.data(), tensor.data.size());
    response->buffers[name] = buffer;
  }
  return response;
}

// The engines answer what they were asked first; whether there was something.
bool Work(bool fails) {
  TRITONSERVER_InferenceRequest* request;
  {
    std::lock_guard lock(fake::mutex);
    if (fake::asked.empty()) return false;
    request = fake::asked.front();
    fake::asked.pop_front();
  }
  auto respond = request->respond;
  auto* user = request->respond_user;
  if (!request->inputs.count("stop")) {
    const int64_t rows = request->inputs["input_ids"].shape[0];
    for (int32_t row = 0; row < rows; ++row) respond(Respond(*request, row, rows, fails), 0, user);
  }
  request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, request->release_user);
  respond(nullptr, TRITONSERVER_RESPONSE_COMPLETE_FINAL, user);
  return true;
}

// A backend's functions, its model's name, and calls that come at once, one group after the other.
struct Scenario {
  TRITONSERVER_Error* (*initialize)(TRITONBACKEND_ModelInstance*);
  TRITONSERVER_Error* (*execute)(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request**, uint32_t);
  TRITONSERVER_Error* (*finalize)(TRITONBACKEND_ModelInstance*);
  std::string model;
  std::vector<std::vector<Inputs>> groups;
};

const std::map<std::string, Scenario> kScenarios{
    {"collector",
     {CollectorInitialize, CollectorExecute, CollectorFinalize, "tensorrt_llm_collector", {{Call(2, 3, 4), Call(1, 3, 4)}}}},
    {"streams",
     {StreamsInitialize, StreamsExecute, StreamsFinalize, "tensorrt_llm_engine_streams", {{Opening(), Reading()}}}},
    {"rounds",
     {RoundsInitialize, RoundsExecute, RoundsFinalize, "tensorrt_llm_engine_rounds",
      {{Round(3), Call(1, 3, 1)}, {Round(6), Stopping()}, {Call(1, 3, 1)}}}}};

void Play(const Scenario& scenario, bool engine_fails) {
  TRITONBACKEND_ModelInstance instance{{scenario.model}};
  if (auto* error = scenario.initialize(&instance)) return TRITONSERVER_ErrorDelete(error);
  for (const auto& group : scenario.groups) {
    std::deque<TRITONBACKEND_Request> requests;
    std::vector<TRITONBACKEND_Request*> all;
    for (const Inputs& inputs : group) {
      auto& request = requests.emplace_back();
      request.id = "request";
      for (const auto& [name, tensor] : inputs) request.inputs.push_back({name, tensor});
      request.outputs = {"output_ids", "sequence_length"};
      all.push_back(&request);
    }
    if (auto* error = scenario.execute(&instance, all.data(), all.size())) {
      TRITONSERVER_ErrorDelete(error);  // the server has them all yet
      for (auto* each : all)
        if (each->released++) fake::Fault("a request is given back that the server has yet");
    }
    const uint64_t since = backend::Now();
    auto open = [&] { return std::any_of(all.begin(), all.end(), [](auto* each) { return !each->released; }); };
    while (Work(engine_fails) || (open() && backend::Now() < since + 20'000'000'000))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (open()) fake::Fault("a request is not given back");
  }
  fake::finalizes = true;
  if (auto* error = scenario.finalize(&instance)) TRITONSERVER_ErrorDelete(error);
  fake::finalizes = false;
}

}  // namespace

// Plays a scenario in which so many calls of Triton fail from the n-th on, and the engines perhaps answer errors. How many
// calls it took; `*faults`: what went wrong, empty where nothing did.
extern "C" int PlayFailing(const char* name, int from, int fails, bool engine_fails, const char** faults) {
  static std::string text;
  fake::calls = 0;
  fake::fails_from = from;
  fake::fails_before = from + fails;
  Play(kScenarios.at(name), engine_fails);
  text.clear();
  for (const auto& fault : fake::faults) text += fault + "; ";
  for (const auto& [object, what] : fake::live) text += what + " is left; ";
  fake::faults.clear();
  fake::live.clear();
  *faults = text.c_str();
  return fake::calls;
}
