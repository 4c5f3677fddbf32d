// Requests that a backend makes for one that it got.
#pragma once

#include <time.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "errors.h"

namespace backend {

using Shape = std::vector<int64_t>;

inline uint64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

inline TRITONSERVER_Error* Allocate(
    TRITONSERVER_ResponseAllocator*, const char*, size_t bytes, TRITONSERVER_MemoryType, int64_t, void*, void** buffer,
    void** buffer_user, TRITONSERVER_MemoryType* memory, int64_t* memory_id) {
  *memory = TRITONSERVER_MEMORY_CPU;
  *memory_id = 0;
  *buffer_user = nullptr;
  *buffer = bytes ? std::malloc(bytes) : nullptr;
  return Answered([&] {
    if (bytes && !*buffer) throw Failure("out of memory");
  });
}

inline TRITONSERVER_Error* Free(
    TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t, TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

// A piece of a tensor's data, which stays where it is.
struct Piece {
  const void* data;
  uint64_t bytes;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
};

// Data that this process may read; `name` is what they are of. Raises Failure where they are on a GPU, as a client's
// CUDA shared memory is.
inline const void* Readable(const std::string& name, const void* data, TRITONSERVER_MemoryType memory) {
  if (memory == TRITONSERVER_MEMORY_GPU) throw Failure(name + " is on a GPU: send it in the memory of the host");
  return data;
}

struct Input {
  std::string name;
  TRITONSERVER_DataType type;
  Shape shape;
  std::vector<Piece> pieces;
};

// The inputs of a request to a backend; the data are the request's. Raises Failure.
inline std::vector<Input> InputsOf(TRITONBACKEND_Request* request) {
  uint32_t count;
  Check(TRITONBACKEND_RequestInputCount(request, &count));
  std::vector<Input> inputs;
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input* input;
    const char* name;
    TRITONSERVER_DataType type;
    const int64_t* shape;
    uint32_t dims, buffers;
    Check(TRITONBACKEND_RequestInputByIndex(request, i, &input));
    Check(TRITONBACKEND_InputProperties(input, &name, &type, &shape, &dims, nullptr, &buffers));
    inputs.push_back({name, type, Shape(shape, shape + dims), {}});
    for (uint32_t j = 0; j < buffers; ++j) {
      Piece piece;
      Check(TRITONBACKEND_InputBuffer(input, j, &piece.data, &piece.bytes, &piece.memory, &piece.memory_id));
      inputs.back().pieces.push_back(piece);
    }
  }
  return inputs;
}

// The outputs that a request asks for. Raises Failure.
inline std::vector<std::string> OutputsOf(TRITONBACKEND_Request* request) {
  uint32_t count;
  Check(TRITONBACKEND_RequestOutputCount(request, &count));
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) {
    const char* name;
    Check(TRITONBACKEND_RequestOutputName(request, i, &name));
    names.push_back(name);
  }
  return names;
}

// A tensor of a response, whose data it holds.
struct OutputTensor {
  const char* name;
  TRITONSERVER_DataType type;
  const int64_t* shape;
  uint64_t dims;
  const char* data;
  size_t bytes;
};

// Raises Failure: a response's error, or what is wrong with reading it.
inline std::vector<OutputTensor> TensorsOf(TRITONSERVER_InferenceResponse* response) {
  Check(TRITONSERVER_InferenceResponseError(response));  // a copy, which is ours, whatever tritonserver.h says
  uint32_t count;
  Check(TRITONSERVER_InferenceResponseOutputCount(response, &count));
  std::vector<OutputTensor> tensors(count);
  for (uint32_t i = 0; i < count; ++i) {
    OutputTensor& tensor = tensors[i];
    const void* data;
    TRITONSERVER_MemoryType memory;
    int64_t memory_id;
    void* user;
    Check(TRITONSERVER_InferenceResponseOutput(
        response, i, &tensor.name, &tensor.type, &tensor.shape, &tensor.dims, &data, &tensor.bytes, &memory, &memory_id,
        &user));
    tensor.data = static_cast<const char*>(data);
  }
  return tensors;
}

// Give a request of ours an input. Raises Failure.
inline void Give(TRITONSERVER_InferenceRequest* request, const Input& input) {
  const char* name = input.name.c_str();
  Check(TRITONSERVER_InferenceRequestAddInput(request, name, input.type, input.shape.data(), input.shape.size()));
  for (const Piece& piece : input.pieces)
    Check(TRITONSERVER_InferenceRequestAppendInputData(
        request, name, piece.data, piece.bytes, piece.memory, piece.memory_id));
}

// Report a request's statistics and let go of it. Whatever is wrong with them: it must go back.
inline void Release(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, bool success, uint64_t rows, uint64_t begun,
    uint64_t computed) {
  uint64_t now = Now();
  Ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, success, begun, begun, computed, now));
  Ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, rows, begun, begun, computed, now));
  Ignore(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

}  // namespace backend
