// Triton's functions return errors; ours throw. No other file holds or frees an error of Triton's: who calls one of its
// functions has to pass the answer on, to `Check` or `Ignore`.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "triton.h"

namespace backend {

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_INTERNAL)
      : std::runtime_error(message), code(code) {}

  TRITONSERVER_Error_Code code;
};

struct DeleteError {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};

// An error of Triton's that is ours.
using Error = std::unique_ptr<TRITONSERVER_Error, DeleteError>;

// Triton's error becomes ours. Raises Failure.
inline void Check(TRITONSERVER_Error* answer) {
  if (Error error{answer}) throw Failure(TRITONSERVER_ErrorMessage(answer), TRITONSERVER_ErrorCode(answer));
}

// Nothing can be done about it.
inline void Ignore(TRITONSERVER_Error* answer) { Error{answer}; }

// What `action` raised, if it did.
template <class Action>
[[nodiscard]] std::optional<Failure> Tried(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const Failure& failure) {
    return failure;
  } catch (const std::exception& error) {
    return Failure(error.what());
  }
}

// Ours becomes Triton's, or nullptr.
inline Error Given(const std::optional<Failure>& failure) {
  return Error(failure ? TRITONSERVER_ErrorNew(failure->code, failure->what()) : nullptr);
}

// What a function that the server calls answers: the error is the server's then.
template <class Action>
[[nodiscard]] TRITONSERVER_Error* Answered(Action action) {
  return Given(Tried(action)).release();
}

// An object of Triton's that is ours, until `release()`; deleted by a function that may answer an error.
template <class Object, TRITONSERVER_Error* (*kDelete)(Object*)>
struct Deleter {
  void operator()(Object* object) const { Ignore(kDelete(object)); }
};

template <class Object, TRITONSERVER_Error* (*kDelete)(Object*)>
using Own = std::unique_ptr<Object, Deleter<Object, kDelete>>;

using Message = Own<TRITONSERVER_Message, TRITONSERVER_MessageDelete>;
using Allocator = Own<TRITONSERVER_ResponseAllocator, TRITONSERVER_ResponseAllocatorDelete>;
using EngineRequest = Own<TRITONSERVER_InferenceRequest, TRITONSERVER_InferenceRequestDelete>;
using EngineResponse = Own<TRITONSERVER_InferenceResponse, TRITONSERVER_InferenceResponseDelete>;

// What `make` puts into its argument. Raises Failure.
template <class Owned, class Make>
Owned Made(Make make) {
  typename Owned::pointer made = nullptr;
  Check(make(&made));
  return Owned(made);
}

}  // namespace backend
