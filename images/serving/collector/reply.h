// A request to one of our backends: its one response, its statistics, and its end. And what instances have in common.
#pragma once

#include <memory>

#include "inner.h"
#include "rows.h"

namespace backend {

// The name of the model that one named X`suffix` calls: X`other`. Raises Failure.
inline std::string Behind(TRITONBACKEND_Model* model, const std::string& suffix, const std::string& other) {
  const char* name;
  Check(TRITONBACKEND_ModelName(model, &name));
  const std::string own = name;
  size_t at = own.rfind(suffix);
  if (at == std::string::npos || at + suffix.size() != own.size())
    throw Failure(own + ": a model of this backend is named X" + suffix + ", and calls X" + other);
  return own.substr(0, at) + other;
}

// A tensor of a response to fill. Raises Failure.
inline char* OutputOf(
    TRITONBACKEND_Response* response, const std::string& name, TRITONSERVER_DataType type, const Shape& shape) {
  TRITONBACKEND_Output* output;
  Check(TRITONBACKEND_ResponseOutput(response, &output, name.c_str(), type, shape.data(), shape.size()));
  void* buffer;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  Check(TRITONBACKEND_OutputBuffer(
      output, &buffer, Elements(shape.data(), shape.size()) * Bytes(type), &memory, &memory_id));
  if (memory == TRITONSERVER_MEMORY_GPU) throw Failure("who called this model asked for " + name + " on a GPU");
  return static_cast<char*>(buffer);
}

// Write the tensors of these names that any of the rows has. Raises Failure.
inline void Stack(
    TRITONBACKEND_Response* response, const std::vector<Row>& rows, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    auto has = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.count(name); });
    if (has == rows.end()) continue;
    auto type = has->at(name).type;
    Shape shape = Stacked(rows, name);
    Stack(rows, name, shape, Bytes(type), OutputOf(response, name, type, shape));
  }
}

class Reply {
 public:
  Reply(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
      : request(request), begun(Now()), instance_(instance) {}

  // Raises Failure.
  std::string Id() const {
    const char* id;
    Check(TRITONBACKEND_RequestId(request, &id));
    return id;
  }

  // Send the response that `fill` writes, or what it raises; of so many rows.
  template <class Fill>
  void Send(size_t rows, Fill fill) {
    rows_ = rows;
    computed_ = Now();
    auto lost = Tried([&] {
      TRITONBACKEND_Response* response;
      Check(TRITONBACKEND_ResponseNew(&response, request));
      const Error error = Given(Tried([&] { fill(response); }));
      success_ = !error;
      Check(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error.get()));
    });
    if (lost) success_ = false;
  }

  // Send an error.
  void Fail(const Failure& failure) {
    Send(1, [&](TRITONBACKEND_Response*) { throw failure; });
  }

  // Give the request back, as the last of all: the model may be unloaded then.
  void Release() { backend::Release(instance_, request, success_, rows_, begun, computed_); }

  TRITONBACKEND_Request* const request;
  const uint64_t begun;

 private:
  TRITONBACKEND_ModelInstance* const instance_;
  size_t rows_ = 1;
  bool success_ = false;
  uint64_t computed_ = 0;
};

template <class State>
State* StateOf(TRITONBACKEND_ModelInstance* instance) {
  void* state;
  Check(TRITONBACKEND_ModelInstanceState(instance, &state));
  return static_cast<State*>(state);
}

template <class State>
TRITONSERVER_Error* Initialize(TRITONBACKEND_ModelInstance* instance) {
  return Answered([&] {
    TRITONBACKEND_Model* model;
    Check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    auto made = std::make_unique<State>(model);
    Check(TRITONBACKEND_ModelInstanceSetState(instance, made.get()));
    made.release();
  });
}

// `take` gets the instance's state and each of the requests, which are its own then.
template <class State, class Take>
TRITONSERVER_Error* Execute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count, Take take) {
  return Answered([&] {
    State& state = *StateOf<State>(instance);  // first: the server keeps all requests where this answers an error
    for (uint32_t i = 0; i < count; ++i) take(state, requests[i]);
  });
}

template <class State>
TRITONSERVER_Error* Finalize(TRITONBACKEND_ModelInstance* instance) {
  return Answered([&] { delete StateOf<State>(instance); });
}

}  // namespace backend
