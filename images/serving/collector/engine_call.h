// A call of an engine from within the server: a request of ours to another model, and all its answers.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "inner.h"
#include "rows.h"

namespace backend {

// Where calls are made: the server, and an allocator that has to outlive their answers.
class Caller {
 public:
  // Raises Failure.
  explicit Caller(TRITONBACKEND_Model* model)
      : allocator(Made<Allocator>([](auto** made) {
          return TRITONSERVER_ResponseAllocatorNew(made, Allocate, Free, nullptr);
        })) {
    Check(TRITONBACKEND_ModelServer(model, &server));
  }

  TRITONSERVER_Server* server;
  const Allocator allocator;
};

// What an engine answered a call of so many rows. The rows' data live as long as it.
class Answer {
 public:
  // In the call's order, whether each came by itself, or all in one response. Raises Failure: a row's error, or what is
  // wrong with them.
  std::vector<Row> Rows(size_t count) const {
    std::vector<Row> rows;
    for (const auto& each : responses)
      if (Row row = Read(each.get()); !row.empty()) rows.push_back(std::move(row));
    if (rows.empty()) throw Failure("the engine ended a call without an answer");
    bool all = rows.size() == 1 && count > 1 && Has(rows[0], count);
    return all ? Parted(rows[0], count) : Ordered(std::move(rows), count);
  }

  std::deque<EngineResponse> responses;

  // The row of one response; empty: it has no outputs. Raises Failure: the response's error, or what is wrong with it.
  static Row Read(TRITONSERVER_InferenceResponse* response) {
    Row row;
    for (const OutputTensor& each : TensorsOf(response)) {
      if (each.bytes != Elements(each.shape, each.dims) * Bytes(each.type))
        throw Failure(std::string(each.name) + " is not as large as it says");
      row[each.name] = {each.type, Shape(each.shape, each.shape + each.dims), each.data};
    }
    return row;
  }
};

// A call while the engine works on it. It deletes itself.
class EngineCall {
 public:
  // Called once, when the last response came and the engine has let go of the inputs, in whichever thread that was.
  using Done = std::function<void(Answer)>;
  // Called for each response when it comes, one after the other.
  using Each = std::function<void(EngineResponse)>;

  // Make a call. What `each` takes is not in the answer. Raises Failure where it cannot be made: `done` is not called
  // then.
  static void Start(
      const Caller& caller, const std::string& engine, const std::string& id, const std::vector<Input>& inputs,
      const std::vector<std::string>& outputs, Done done, Each each = nullptr) {
    auto call = std::unique_ptr<EngineCall>(new EngineCall(std::move(done), std::move(each)));
    auto own = Made<EngineRequest>([&](auto** made) {
      return TRITONSERVER_InferenceRequestNew(made, caller.server, engine.c_str(), -1);
    });
    auto* request = own.get();
    Check(TRITONSERVER_InferenceRequestSetId(request, id.c_str()));
    for (const Input& input : inputs) Give(request, input);
    // TensorRT-LLM does not look at it, and answers each row by itself.
    if (!inputs.empty() && inputs[0].shape.at(0) > 1)
      Check(TRITONSERVER_InferenceRequestSetBoolParameter(request, "one_response", true));
    for (const auto& name : outputs) Check(TRITONSERVER_InferenceRequestAddRequestedOutput(request, name.c_str()));
    Check(TRITONSERVER_InferenceRequestSetReleaseCallback(request, Released, call.get()));
    Check(TRITONSERVER_InferenceRequestSetResponseCallback(
        request, caller.allocator.get(), nullptr, Responded, call.get()));
    Check(TRITONSERVER_ServerInferAsync(caller.server, request, nullptr));
    own.release();  // from then on they are the server's; they may be gone already
    call.release();
  }

 private:
  EngineCall(Done done, Each each) : done_(std::move(done)), each_(std::move(each)) {}

  static void Released(TRITONSERVER_InferenceRequest* request, uint32_t, void* user) {
    EngineRequest{request};
    static_cast<EngineCall*>(user)->End();
  }

  static void Responded(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user) {
    auto* call = static_cast<EngineCall*>(user);
    if (response && call->each_) {
      call->each_(EngineResponse(response));
    } else if (response) {
      std::lock_guard lock(call->mutex_);
      call->answer_.responses.emplace_back(response);
    }
    if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) call->End();
  }

  // Once the last response came, and once the engine let go of its request: in any order.
  void End() {
    if (--open_) return;
    done_(std::move(answer_));
    delete this;
  }

  Done done_;
  Each each_;
  std::mutex mutex_;  // of the answer
  Answer answer_;
  std::atomic<int> open_{2};
};

}  // namespace backend
