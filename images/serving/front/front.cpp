// A Triton backend: the speculative BLS as clients know it, before the Python model that does the work.
//
// A model X passes its requests to X_loop, with a ticket each. Many sequences' chunks come from there in one response, a
// wave (tandem_serving/adapter/packing.py), with any request that is open; here each client gets its own. What does not fit into
// a wave, errors among it, comes with the client's own request and goes on as it is. A model X_clients tells which
// tickets are of clients that have left.
//
// A response through Triton's Python backend costs two changes of process and some tensors, and a question for a client
// as much: both are asked and answered for many at once. No thread of ours: responses go on in those that bring them.

#include <atomic>
#include <cstring>

#include "../collector/engine_call.h"
#include "../collector/reply.h"
#include "client.h"

namespace front {

Table clients;

constexpr const char *kWave = "wave", *kWaveText = "wave_text", *kTicket = "ticket";
constexpr const char *kTickets = "tickets", *kGone = "gone";

using Tensor = backend::OutputTensor;

// A model instance's state.
class Front {
 public:
  // Raises Failure.
  explicit Front(TRITONBACKEND_Model* model) : caller(model) {
    const char* name;
    Check(TRITONBACKEND_ModelName(model, &name));
    const std::string own = name, suffix = "_clients";
    answers = own.size() > suffix.size() && own.compare(own.size() - suffix.size(), suffix.size(), suffix) == 0;
    loop = own + "_loop";
  }

  const backend::Caller caller;
  std::string loop;
  bool answers;  // which clients have left, and nothing else
};

// Writes the outputs of a response, of those that the client wants.
class Writer {
 public:
  Writer(TRITONBACKEND_Response* response, const Client& client) : response_(response), client_(client) {}

  // Room for an output; nullptr: nobody wants it, or it is empty.
  char* Add(const char* name, TRITONSERVER_DataType type, const int64_t* shape, uint32_t dims, size_t bytes) {
    if (!client_.Wanted().count(name)) return nullptr;
    TRITONBACKEND_Output* output;
    void* buffer;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    Check(TRITONBACKEND_ResponseOutput(response_, &output, name, type, shape, dims));
    Check(TRITONBACKEND_OutputBuffer(output, &buffer, bytes, &memory, &memory_id));
    if (memory == TRITONSERVER_MEMORY_GPU) throw Failure(std::string(name) + " was asked for on a GPU");
    return bytes ? static_cast<char*>(buffer) : nullptr;
  }

  // A string, of shape [1] or [1, 1].
  void Text(const char* name, uint32_t dims, const char* text, uint32_t bytes) {
    const int64_t shape[] = {1, 1};
    if (char* to = Add(name, TRITONSERVER_TYPE_BYTES, shape, dims, sizeof bytes + bytes)) {
      std::memcpy(to, &bytes, sizeof bytes);
      std::memcpy(to + sizeof bytes, text, bytes);
    }
  }

  template <class Number>
  void One(const char* name, TRITONSERVER_DataType type, Number value) {
    const int64_t shape[] = {1, 1};
    if (char* to = Add(name, type, shape, 2, sizeof value)) std::memcpy(to, &value, sizeof value);
  }

  void Int(const char* name, int32_t value) { One(name, TRITONSERVER_TYPE_INT32, value); }

 private:
  TRITONBACKEND_Response* response_;
  const Client& client_;
};

// As BlsResponder of tandem_serving/adapter/bls_response.py makes them.
void Write(const Chunk& chunk, Writer to) {
  const char* reason = chunk.FinishReason();
  to.Text("text_output", 1, chunk.text, chunk.text_bytes);
  const int64_t shape[] = {1, chunk.count};
  if (char* ids = to.Add("output_ids", TRITONSERVER_TYPE_INT32, shape, 2, chunk.count * sizeof(int32_t)))
    std::copy(chunk.ids, chunk.ids + chunk.count, reinterpret_cast<int32_t*>(ids));
  if (chunk.finish) to.One("acceptance_rate", TRITONSERVER_TYPE_FP32, chunk.AcceptanceRate());
  to.Int("num_accepted_draft_tokens", chunk.accepted);
  to.Int("draft_text_length", chunk.draft_length);
  to.Text("finish_reason", 2, reason, std::strlen(reason));
  to.Int("batch_index", chunk.batch_index);
  if (!chunk.finish) return;
  to.Int("total_accepted_draft_tokens", chunk.total_accepted);
  to.Int("total_draft_tokens", chunk.total_drafted);
  to.Int("num_input_tokens", chunk.input_tokens);
  to.Int("num_output_tokens", chunk.output_tokens);
}

// Give each client its chunk. Raises Failure.
void Deliver(const Tensor& numbers, const Tensor& text) {
  if (numbers.type != TRITONSERVER_TYPE_INT64 || text.type != TRITONSERVER_TYPE_UINT8)
    throw Failure("a wave's tensors have other types");
  Wave wave(reinterpret_cast<const int64_t*>(numbers.data), numbers.bytes / sizeof(int64_t), text.data, text.bytes);
  for (Chunk chunk; wave.Next(chunk);) {
    auto client = clients.Find(chunk.ticket);
    if (!client) continue;
    client->Send(chunk.last, [&](auto* response) { Write(chunk, Writer(response, *client)); });
    if (chunk.last) clients.Settle(client);
  }
}

// Give a client a response as it came.
void Pass(const std::vector<Tensor>& tensors, const ClientPtr& client, bool last) {
  client->Send(last, [&](auto* response) {
    for (const auto& each : tensors)
      if (char* to = Writer(response, *client).Add(each.name, each.type, each.shape, each.dims, each.bytes))
        std::memcpy(to, each.data, each.bytes);
  });
}

// A client's request at the loop. It deletes itself.
class Call {
 public:
  Call(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
      : begun_(Now()), instance_(instance), request_(request) {}

  void Start(const Front& front) {
    TRITONSERVER_InferenceRequest* inner = nullptr;
    auto* error = backend::Guarded([&] {
      client_ = clients.Add(request_);
      Check(TRITONSERVER_InferenceRequestNew(&inner, front.caller.server, front.loop.c_str(), -1));
      PassInputs(inner);
      PassParameters(inner);
      const int64_t shape[] = {int64_t(tickets_.size()), 1};
      Check(TRITONSERVER_InferenceRequestAddInput(inner, kTicket, TRITONSERVER_TYPE_INT64, shape, 2));
      Check(TRITONSERVER_InferenceRequestAppendInputData(
          inner, kTicket, tickets_.data(), tickets_.size() * sizeof(int64_t), TRITONSERVER_MEMORY_CPU, 0));
      for (const auto& name : client_->Wanted())
        Check(TRITONSERVER_InferenceRequestAddRequestedOutput(inner, name.c_str()));
      for (const auto* name : {kWave, kWaveText})
        Check(TRITONSERVER_InferenceRequestAddRequestedOutput(inner, name));
      Check(TRITONSERVER_InferenceRequestSetReleaseCallback(inner, Released, this));
      Check(TRITONSERVER_InferenceRequestSetResponseCallback(inner, front.caller.allocator, nullptr, Responded, this));
      Check(TRITONSERVER_ServerInferAsync(front.caller.server, inner, nullptr));
    });
    if (!error) return;  // this may be gone already
    if (inner) TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(inner));
    if (client_) {
      client_->Fail(error);
      clients.Settle(client_);
    }
    TRITONSERVER_ErrorDelete(error);
    Release(false);
    delete this;
  }

 private:
  static void Released(TRITONSERVER_InferenceRequest* inner, uint32_t, void* user) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(inner));
    auto* call = static_cast<Call*>(user);
    call->Release(true);  // though its responses are still to come: as the Python backend has it
    call->Part();
  }

  static void Responded(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* user) {
    auto* call = static_cast<Call*>(user);
    bool last = flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL;
    if (auto* error = backend::Guarded([&] {
          if (response) call->Take(response, last);
        })) {
      call->client_->Fail(error);
      TRITONSERVER_ErrorDelete(error);
    }
    if (response) TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceResponseDelete(response));
    if (!last) return;
    call->client_->End();  // unless it has ended: with its last chunk in a wave, or with an error
    clients.Settle(call->client_);
    call->Part();
  }

  // Raises Failure: an error of the loop's, or what is wrong with a response.
  void Take(TRITONSERVER_InferenceResponse* response, bool last) {
    auto tensors = backend::TensorsOf(response);
    if (tensors.size() == 2 && tensors[0].name == std::string(kWave) && tensors[1].name == std::string(kWaveText))
      Deliver(tensors[0], tensors[1]);
    else
      Pass(tensors, client_, last);
  }

  // Raises Failure.
  void PassInputs(TRITONSERVER_InferenceRequest* inner) {
    const char* id;
    Check(TRITONBACKEND_RequestId(request_, &id));
    Check(TRITONSERVER_InferenceRequestSetId(inner, id));
    for (auto& input : backend::InputsOf(request_)) {
      tickets_.assign(input.shape.at(0), client_->ticket);     // of all inputs: the model has a max_batch_size
      if (input.shape.size() == 1) input.shape.push_back(1);  // as clients send it, where the configuration reshapes that
      backend::Give(inner, input);
    }
  }

  // Their names: the loop refuses those that it does not know. Raises Failure.
  void PassParameters(TRITONSERVER_InferenceRequest* inner) {
    uint32_t count;
    Check(TRITONBACKEND_RequestParameterCount(request_, &count));
    for (uint32_t i = 0; i < count; ++i) {
      const char* name;
      TRITONSERVER_ParameterType type;
      const void* value;
      Check(TRITONBACKEND_RequestParameter(request_, i, &name, &type, &value));
      Check(TRITONSERVER_InferenceRequestSetBoolParameter(inner, name, true));
    }
  }

  void Release(bool success) {
    backend::Release(instance_, request_, success, std::max<size_t>(1, tickets_.size()), begun_, Now());
  }

  // Once the last response came, and once the loop let go of its request: in any order.
  void Part() {
    if (!--open_) delete this;
  }

  const uint64_t begun_;
  TRITONBACKEND_ModelInstance* instance_;
  TRITONBACKEND_Request* request_;
  ClientPtr client_;
  std::vector<int64_t> tickets_;  // one a prompt
  std::atomic<int> open_{2};
};

// Of each ticket, whether its client has left, or has had its last response.
void Answer(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  TRITONBACKEND_Input* input;
  TRITONBACKEND_Output* output;
  uint32_t buffers;
  uint64_t bytes;
  const void* tickets = nullptr;
  void* gone;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU, there = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  Check(TRITONBACKEND_RequestInput(request, kTickets, &input));
  Check(TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr, nullptr, &bytes, &buffers));
  if (buffers > 1) throw Failure("tickets are in several buffers");
  if (buffers) Check(TRITONBACKEND_InputBuffer(input, 0, &tickets, &bytes, &memory, &memory_id));
  backend::Readable(kTickets, tickets, memory);
  const int64_t count = bytes / sizeof(int64_t);
  Check(TRITONBACKEND_ResponseOutput(response, &output, kGone, TRITONSERVER_TYPE_BOOL, &count, 1));
  Check(TRITONBACKEND_OutputBuffer(output, &gone, count, &there, &memory_id));
  if (there == TRITONSERVER_MEMORY_GPU) throw Failure(std::string(kGone) + " was asked for on a GPU");
  for (int64_t i = 0; i < count; ++i) {
    auto client = clients.Find(static_cast<const int64_t*>(tickets)[i]);
    static_cast<bool*>(gone)[i] = !client || client->Gone();
  }
}

// Answer a request to X_clients.
void Tell(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  backend::Reply reply(instance, request);
  reply.Send(1, [&](auto* response) { Answer(request, response); });
  reply.Release();
}

}  // namespace front

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Initialize<front::Front>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Finalize<front::Front>(instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  front::clients.Sweep();
  return backend::Execute<front::Front>(instance, requests, count, [&](auto& state, auto* request) {
    if (state.answers)
      front::Tell(instance, request);
    else
      (new front::Call(instance, request))->Start(state);
  });
}
}
