// Triton's functions return errors; ours throw.
#pragma once

#include <stdexcept>
#include <string>

#include "triton.h"

namespace backend {

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_INTERNAL)
      : std::runtime_error(message), code(code) {}

  const TRITONSERVER_Error_Code code;
};

// Triton's error becomes ours. Raises Failure.
inline void Check(TRITONSERVER_Error* error) {
  if (!error) return;
  Failure failure(TRITONSERVER_ErrorMessage(error), TRITONSERVER_ErrorCode(error));
  TRITONSERVER_ErrorDelete(error);
  throw failure;
}

// Ours becomes Triton's: what `action` raised, or nullptr.
template <class Action>
TRITONSERVER_Error* Guarded(Action action) {
  try {
    action();
    return nullptr;
  } catch (const Failure& failure) {
    return TRITONSERVER_ErrorNew(failure.code, failure.what());
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  }
}

}  // namespace backend
