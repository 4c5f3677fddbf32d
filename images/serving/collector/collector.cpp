// A Triton backend: a decoupled engine as a model that answers all rows of a call in one response.
//
// TensorRT-LLM's backend takes calls of several rows only where it is decoupled, and then answers each row by itself.
// Calls with several responses can lock up Triton's Python backend (docs/bls.md), so the speculative BLS makes its
// calls here. A model X_collector calls X_engine: the same tensors, the same request id (a `stop` goes to the engine
// itself). A row's error is the call's, when all rows have ended: who asked may then ask for each by itself.
//
// No thread of ours: calls go on in those of whoever brings a response, and any number may be under way.

#include <time.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "errors.h"
#include "rows.h"
#include "triton.h"

namespace collector {

using backend::Check;

uint64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

TRITONSERVER_Error* Allocate(
    TRITONSERVER_ResponseAllocator*, const char*, size_t bytes, TRITONSERVER_MemoryType, int64_t, void*, void** buffer,
    void** buffer_user, TRITONSERVER_MemoryType* memory, int64_t* memory_id) {
  *memory = TRITONSERVER_MEMORY_CPU;
  *memory_id = 0;
  *buffer_user = nullptr;
  *buffer = bytes ? std::malloc(bytes) : nullptr;
  return bytes && !*buffer ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "out of memory") : nullptr;
}

TRITONSERVER_Error* Free(
    TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t, TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

// A model instance's state.
class Collector {
 public:
  // Raises Failure.
  explicit Collector(TRITONBACKEND_ModelInstance* instance) {
    TRITONBACKEND_Model* model;
    const char* name;
    Check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    Check(TRITONBACKEND_ModelName(model, &name));
    Check(TRITONBACKEND_ModelServer(model, &server));
    const std::string own = name, suffix = "_collector";
    size_t at = own.rfind(suffix);
    if (at == std::string::npos || at + suffix.size() != own.size())
      throw Failure(own + ": a model of this backend is named X_collector, and calls X_engine");
    engine = own.substr(0, at) + "_engine";
    Check(TRITONSERVER_ResponseAllocatorNew(&allocator, Allocate, Free, nullptr));
  }

  ~Collector() { TRITONSERVER_ErrorDelete(TRITONSERVER_ResponseAllocatorDelete(allocator)); }

  TRITONSERVER_Server* server;
  TRITONSERVER_ResponseAllocator* allocator;
  std::string engine;
};

struct DeleteResponse {
  void operator()(TRITONSERVER_InferenceResponse* response) const {
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceResponseDelete(response));
  }
};

using Response = std::unique_ptr<TRITONSERVER_InferenceResponse, DeleteResponse>;

// A request to the collector while the engine works on it. It deletes itself.
class Call {
 public:
  Call(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
      : begun_(Now()), instance_(instance), request_(request) {}

  void Start(const Collector& collector) {
    TRITONSERVER_InferenceRequest* inner = nullptr;
    auto* error = backend::Guarded([&] {
      Check(TRITONSERVER_InferenceRequestNew(&inner, collector.server, collector.engine.c_str(), -1));
      const char* id;
      Check(TRITONBACKEND_RequestId(request_, &id));
      Check(TRITONSERVER_InferenceRequestSetId(inner, id));
      PassInputs(inner);
      PassOutputs(inner);
      Check(TRITONSERVER_InferenceRequestSetReleaseCallback(inner, Released, this));
      Check(TRITONSERVER_InferenceRequestSetResponseCallback(inner, collector.allocator, nullptr, Responded, this));
      Check(TRITONSERVER_ServerInferAsync(collector.server, inner, nullptr));
    });
    if (!error) return;  // this may be gone already
    if (inner) TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(inner));
    Answer(error);
    delete this;
  }

 private:
  // The data stay where they are: of our request, which is released after the engine's.
  void PassInputs(TRITONSERVER_InferenceRequest* inner) {
    uint32_t count;
    Check(TRITONBACKEND_RequestInputCount(request_, &count));
    for (uint32_t i = 0; i < count; ++i) {
      TRITONBACKEND_Input* input;
      const char* name;
      TRITONSERVER_DataType type;
      const int64_t* shape;
      uint32_t dims, buffers;
      Check(TRITONBACKEND_RequestInputByIndex(request_, i, &input));
      Check(TRITONBACKEND_InputProperties(input, &name, &type, &shape, &dims, nullptr, &buffers));
      Check(TRITONSERVER_InferenceRequestAddInput(inner, name, type, shape, dims));
      rows_ = shape[0];  // of all inputs: the model has a max_batch_size
      for (uint32_t j = 0; j < buffers; ++j) {
        const void* buffer;
        uint64_t bytes;
        TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
        int64_t memory_id = 0;
        Check(TRITONBACKEND_InputBuffer(input, j, &buffer, &bytes, &memory, &memory_id));
        Check(TRITONSERVER_InferenceRequestAppendInputData(inner, name, buffer, bytes, memory, memory_id));
      }
    }
  }

  void PassOutputs(TRITONSERVER_InferenceRequest* inner) {
    uint32_t count;
    Check(TRITONBACKEND_RequestOutputCount(request_, &count));
    for (uint32_t i = 0; i < count; ++i) {
      const char* name;
      Check(TRITONBACKEND_RequestOutputName(request_, i, &name));
      wanted_.push_back(name);
      if (wanted_.back() != kIndex) Check(TRITONSERVER_InferenceRequestAddRequestedOutput(inner, name));
    }
    Check(TRITONSERVER_InferenceRequestAddRequestedOutput(inner, kIndex));
  }

  static void Released(TRITONSERVER_InferenceRequest* inner, uint32_t, void* user) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(inner));
    static_cast<Call*>(user)->End();
  }

  static void Responded(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user) {
    auto* call = static_cast<Call*>(user);
    if (response) {
      std::lock_guard lock(call->mutex_);
      call->responses_.emplace_back(response);
    }
    if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) call->End();
  }

  // Once the last response came, and once the engine let go of its request: in any order.
  void End() {
    if (--open_) return;
    Answer(nullptr);
    delete this;
  }

  // Send the one response, or the `error`, which is taken over.
  void Answer(TRITONSERVER_Error* error) {
    TRITONBACKEND_Response* response = nullptr;
    uint64_t computed = Now();
    auto* lost = backend::Guarded([&] {
      Check(TRITONBACKEND_ResponseNew(&response, request_));
      if (!error) error = backend::Guarded([&] { Fill(response); });
      Check(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    });
    uint64_t end = Now(), rows = std::max<size_t>(1, responses_.size());
    bool success = !error && !lost;
    responses_.clear();  // they need the model instance's allocator, and our request keeps the model loaded
    // Whatever is wrong with statistics, or with who asked: the request must go back.
    for (auto* each : {
             error, lost,
             TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, success, begun_, begun_, computed, end),
             TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, rows, begun_, begun_, computed, end),
             TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL)})
      if (each) TRITONSERVER_ErrorDelete(each);
  }

  // Write the tensors of all rows. Raises Failure: a row's error, or what is wrong with them.
  void Fill(TRITONBACKEND_Response* response) const {
    std::vector<Row> rows;
    for (const auto& each : responses_)
      if (Row row = Read(each.get()); !row.empty()) rows.push_back(std::move(row));
    if (rows.empty()) throw Failure("the engine ended a call without an answer");
    rows = Ordered(std::move(rows), rows_);
    for (const auto& name : wanted_) {
      auto has = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.count(name); });
      if (has == rows.end()) continue;
      auto type = has->at(name).type;
      Shape shape = Stacked(rows, name);
      size_t bytes = Bytes(type);
      TRITONBACKEND_Output* output;
      Check(TRITONBACKEND_ResponseOutput(response, &output, name.c_str(), type, shape.data(), shape.size()));
      void* buffer;
      TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
      int64_t memory_id = 0;
      Check(TRITONBACKEND_OutputBuffer(
          output, &buffer, Elements(shape.data(), shape.size()) * bytes, &memory, &memory_id));
      if (memory == TRITONSERVER_MEMORY_GPU) throw Failure("who called a collector asked for " + name + " on a GPU");
      Stack(rows, name, shape, bytes, static_cast<char*>(buffer));
    }
  }

  static Row Read(TRITONSERVER_InferenceResponse* response) {
    Check(TRITONSERVER_InferenceResponseError(response));  // a copy, which is ours, whatever tritonserver.h says
    uint32_t count;
    Check(TRITONSERVER_InferenceResponseOutputCount(response, &count));
    Row row;
    for (uint32_t i = 0; i < count; ++i) {
      const char* name;
      TRITONSERVER_DataType type;
      const int64_t* shape;
      uint64_t dims;
      const void* data;
      size_t bytes;
      TRITONSERVER_MemoryType memory;
      int64_t memory_id;
      void* user;
      Check(TRITONSERVER_InferenceResponseOutput(
          response, i, &name, &type, &shape, &dims, &data, &bytes, &memory, &memory_id, &user));
      if (bytes != Elements(shape, dims) * Bytes(type)) throw Failure(std::string(name) + " is not as large as it says");
      row[name] = {type, Shape(shape, shape + dims), static_cast<const char*>(data)};
    }
    return row;
  }

  const uint64_t begun_;
  TRITONBACKEND_ModelInstance* instance_;
  TRITONBACKEND_Request* request_;
  size_t rows_ = 0;
  std::vector<std::string> wanted_;
  std::mutex mutex_;  // of the responses
  std::vector<Response> responses_;
  std::atomic<int> open_{2};
};

Collector* CollectorOf(TRITONBACKEND_ModelInstance* instance) {
  void* state;
  Check(TRITONBACKEND_ModelInstanceState(instance, &state));
  return static_cast<Collector*>(state);
}

}  // namespace collector

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Guarded([&] {
    auto made = std::make_unique<collector::Collector>(instance);
    backend::Check(TRITONBACKEND_ModelInstanceSetState(instance, made.get()));
    made.release();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Guarded([&] { delete collector::CollectorOf(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  return backend::Guarded([&] {
    auto* collector = collector::CollectorOf(instance);
    for (uint32_t i = 0; i < count; ++i) (new collector::Call(instance, requests[i]))->Start(*collector);
  });
}
}
