// Triton's C API as far as our backends use it, of objects that are counted. Its functions fail from the n-th call on, one
// or more; what our backends then do not free, or free twice, is a fault.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../../../images/serving/collector/triton.h"

namespace fake {

struct Tensor {
  TRITONSERVER_DataType type;
  std::vector<int64_t> shape;
  std::vector<char> data;
};

inline std::mutex mutex;  // of what follows, which threads of the backends use
inline std::map<const void*, std::string> live;
inline std::vector<std::string> faults;
inline int calls = 0, fails_from = 0, fails_before = 0;

inline void Fault(const std::string& what) {
  std::lock_guard lock(mutex);
  faults.push_back(what);
}

template <class T>
T* Born(T* object, const std::string& what) {
  std::lock_guard lock(mutex);
  live[object] = what;
  return object;
}

template <class T>
void Dies(T* object, const std::string& what) {
  {
    std::lock_guard lock(mutex);
    if (!live.erase(object)) return faults.push_back(what + " is freed that is not there");
  }
  delete object;
}

}  // namespace fake

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};
struct TRITONSERVER_Message {};
struct TRITONSERVER_Server {};
struct TRITONSERVER_ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t allocate;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release;
};
struct TRITONSERVER_InferenceRequest {
  std::map<std::string, fake::Tensor> inputs;
  TRITONSERVER_InferenceRequestReleaseFn_t release;
  TRITONSERVER_InferenceResponseCompleteFn_t respond;
  TRITONSERVER_ResponseAllocator* allocator;
  void *release_user, *respond_user;
};
struct TRITONSERVER_InferenceResponse {
  std::map<std::string, fake::Tensor> outputs;
  std::map<std::string, void*> buffers;
  TRITONSERVER_ResponseAllocator* allocator;
  bool failed = false;
};
struct TRITONBACKEND_Model {
  std::string name;
};
struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model model;
  void* state = nullptr;
};
struct TRITONBACKEND_Input {
  std::string name;
  fake::Tensor tensor;
};
struct TRITONBACKEND_Request {
  std::string id;
  std::deque<TRITONBACKEND_Input> inputs;
  std::vector<std::string> outputs;
  std::atomic<int> released{0};
};
struct TRITONBACKEND_Output {
  std::vector<char> data;
};
struct TRITONBACKEND_Response {
  std::deque<TRITONBACKEND_Output> outputs;
};

namespace fake {

inline std::deque<TRITONSERVER_InferenceRequest*> asked;  // of the engines
inline TRITONSERVER_Server server;
inline bool finalizes = false;

inline TRITONSERVER_Error* Fail(const std::string& why) {
  return Born(new TRITONSERVER_Error{TRITONSERVER_ERROR_UNAVAILABLE, why}, "an error");
}

// nullptr, but of the calls that are to fail.
inline TRITONSERVER_Error* Answer() {
  bool fails;
  {
    std::lock_guard lock(mutex);
    fails = ++calls >= fails_from && calls < fails_before;
  }
  return fails ? Fail("it fails") : nullptr;
}

}  // namespace fake

#define ANSWER_OR(action)                        \
  if (auto* failed = fake::Answer()) return failed; \
  action;                                        \
  return nullptr

extern "C" {
TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message) {
  return fake::Born(new TRITONSERVER_Error{code, message}, "an error");
}
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { fake::Dies(error, "an error"); }
TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message*, const char** base, size_t* bytes) {
  static const std::string text = R"({"max_batch_size":8})";
  ANSWER_OR((*base = text.data(), *bytes = text.size()));
}
TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  fake::Dies(message, "a message");
  return fake::Answer();
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator** allocator, TRITONSERVER_ResponseAllocatorAllocFn_t allocate,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release, TRITONSERVER_ResponseAllocatorStartFn_t) {
  ANSWER_OR(*allocator = fake::Born(new TRITONSERVER_ResponseAllocator{allocate, release}, "an allocator"));
}
TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator* allocator) {
  fake::Dies(allocator, "an allocator");
  return fake::Answer();
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest** request, TRITONSERVER_Server*, const char*, int64_t) {
  ANSWER_OR(*request = fake::Born(new TRITONSERVER_InferenceRequest(), "a request to an engine"));
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request) {
  fake::Dies(request, "a request to an engine");
  return fake::Answer();
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest*, const char*) {
  return fake::Answer();
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetBoolParameter(TRITONSERVER_InferenceRequest*, const char*, bool) {
  return fake::Answer();
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(
    TRITONSERVER_InferenceRequest* request, const char* name, TRITONSERVER_DataType type, const int64_t* shape,
    uint64_t dims) {
  ANSWER_OR((request->inputs[name] = {type, {shape, shape + dims}, {}}));
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* buffer, size_t bytes, TRITONSERVER_MemoryType,
    int64_t) {
  auto* from = static_cast<const char*>(buffer);
  ANSWER_OR(request->inputs[name].data.insert(request->inputs[name].data.end(), from, from + bytes));
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(TRITONSERVER_InferenceRequest*, const char*) {
  return fake::Answer();
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceRequestReleaseFn_t release, void* user) {
  ANSWER_OR((request->release = release, request->release_user = user));
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_ResponseAllocator* allocator, void*,
    TRITONSERVER_InferenceResponseCompleteFn_t respond, void* user) {
  ANSWER_OR((request->allocator = allocator, request->respond = respond, request->respond_user = user));
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response) {
  for (auto& [name, buffer] : response->buffers) response->allocator->release(nullptr, buffer, nullptr, 0, {}, 0);
  fake::Dies(response, "an engine's response");
  return fake::Answer();
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse* response) {
  if (response->failed) return fake::Fail("the engine fails");  // one a call, as the server's own
  return fake::Answer();
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(
    TRITONSERVER_InferenceResponse* response, uint32_t* count) {
  ANSWER_OR(*count = response->outputs.size());
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse* response, uint32_t index, const char** name, TRITONSERVER_DataType* type,
    const int64_t** shape, uint64_t* dims, const void** buffer, size_t* bytes, TRITONSERVER_MemoryType*, int64_t*,
    void**) {
  if (auto* failed = fake::Answer()) return failed;
  auto& [key, tensor] = *std::next(response->outputs.begin(), index);
  *name = key.c_str(), *type = tensor.type, *shape = tensor.shape.data(), *dims = tensor.shape.size();
  *buffer = response->buffers[key], *bytes = tensor.data.size();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(
    TRITONSERVER_Server*, TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceTrace*) {
  if (auto* failed = fake::Answer()) return failed;
  std::lock_guard lock(fake::mutex);
  fake::asked.push_back(request);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  ANSWER_OR(*name = model->name.c_str());
}
TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model*, uint32_t, TRITONSERVER_Message** config) {
  ANSWER_OR(*config = fake::Born(new TRITONSERVER_Message(), "a message"));
}
TRITONSERVER_Error* TRITONBACKEND_ModelServer(TRITONBACKEND_Model*, TRITONSERVER_Server** server) {
  ANSWER_OR(*server = &fake::server);
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* of, TRITONBACKEND_Model** model) {
  ANSWER_OR(*model = &of->model);
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance, void** state) {
  *state = instance->state;
  return fake::finalizes ? nullptr : fake::Answer();
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance, void* state) {
  ANSWER_OR(instance->state = state);
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request*, bool, uint64_t, uint64_t, uint64_t, uint64_t) {
  return fake::Answer();
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance*, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) {
  return fake::Answer();
}

TRITONSERVER_Error* TRITONBACKEND_RequestId(TRITONBACKEND_Request* request, const char** id) {
  ANSWER_OR(*id = request->id.c_str());
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request, uint32_t* count) {
  ANSWER_OR(*count = request->inputs.size());
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(
    TRITONBACKEND_Request* request, uint32_t index, TRITONBACKEND_Input** input) {
  ANSWER_OR(*input = &request->inputs[index]);
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request, uint32_t* count) {
  ANSWER_OR(*count = request->outputs.size());
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t i, const char** name) {
  ANSWER_OR(*name = request->outputs[i].c_str());
}
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t) {
  if (request->released++) fake::Fault("a request is given back twice");
  return fake::Answer();
}
TRITONSERVER_Error* TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input* input, const char** name, TRITONSERVER_DataType* type, const int64_t** shape, uint32_t* dims,
    uint64_t*, uint32_t* buffers) {
  if (auto* failed = fake::Answer()) return failed;
  *name = input->name.c_str(), *type = input->tensor.type, *shape = input->tensor.shape.data();
  *dims = input->tensor.shape.size(), *buffers = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(
    TRITONBACKEND_Input* input, uint32_t, const void** buffer, uint64_t* bytes, TRITONSERVER_MemoryType*, int64_t*) {
  ANSWER_OR((*buffer = input->tensor.data.data(), *bytes = input->tensor.data.size()));
}
TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response, TRITONBACKEND_Request*) {
  ANSWER_OR(*response = fake::Born(new TRITONBACKEND_Response(), "a response"));
}
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response* response, TRITONBACKEND_Output** output, const char*, TRITONSERVER_DataType,
    const int64_t*, uint32_t) {
  ANSWER_OR(*output = &response->outputs.emplace_back());
}
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output* output, void** buffer, uint64_t bytes, TRITONSERVER_MemoryType*, int64_t*) {
  ANSWER_OR((output->data.resize(bytes), *buffer = output->data.data()));
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, uint32_t, TRITONSERVER_Error*) {
  fake::Dies(response, "a response");  // the error stays the backend's
  return fake::Answer();
}
}
