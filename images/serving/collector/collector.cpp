// A Triton backend: a decoupled engine as a model that answers all rows of a call in one response.
//
// TensorRT-LLM's backend takes calls of several rows only where it is decoupled, and then answers each row by itself.
// Calls with several responses can lock up Triton's Python backend (docs/design/triton-backend.md), so the
// speculative BLS makes its calls here. A model X_collector calls X_engine: the same tensors, the same request id (a
// `stop` goes to the engine itself). A row's error is the call's, when all rows have ended: who asked may then ask for each by itself.
//
// No thread of ours: calls go on in those of whoever brings a response, and any number may be under way.

#include "engine_call.h"
#include "reply.h"

namespace collector {

using namespace backend;

// A model instance's state.
class Collector {
 public:
  // Raises Failure.
  explicit Collector(TRITONBACKEND_Model* model) : caller(model), engine(Behind(model, "_collector", "_engine")) {}

  const Caller caller;
  const std::string engine;
};

// A request to the collector while the engine works on it. It deletes itself.
class Call {
 public:
  Call(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) : reply_(instance, request) {}

  void Start(const Collector& collector) {
    auto failure = Tried([&] {
      auto inputs = InputsOf(reply_.request);
      rows_ = inputs.at(0).shape.at(0);  // of all inputs: the model has a max_batch_size
      wanted_ = OutputsOf(reply_.request);
      auto outputs = wanted_;
      if (std::find(outputs.begin(), outputs.end(), kIndex) == outputs.end()) outputs.push_back(kIndex);
      EngineCall::Start(collector.caller, collector.engine, reply_.Id(), inputs, outputs, [this](Answer answer) {
        reply_.Send(rows_, [&](TRITONBACKEND_Response* response) { Stack(response, answer.Rows(rows_), wanted_); });
        answer.responses.clear();  // they need the model instance's allocator, and our request keeps the model loaded
        reply_.Release();
        delete this;
      });
    });
    if (!failure) return;  // this may be gone already
    reply_.Fail(*failure);
    reply_.Release();
    delete this;
  }

 private:
  Reply reply_;
  size_t rows_ = 1;
  std::vector<std::string> wanted_;
};

}  // namespace collector

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Initialize<collector::Collector>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Finalize<collector::Collector>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  return backend::Execute<collector::Collector>(instance, requests, count, [&](auto& state, auto* request) {
    (new collector::Call(instance, request))->Start(state);
  });
}
}
