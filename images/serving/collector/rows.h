// From the rows of a call, one a response, to tensors of all rows. No Triton but its data types.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "errors.h"
#include "inner.h"

namespace backend {

constexpr const char* kIndex = "batch_index";  // int32[1, 1]: TensorRT-LLM's name for a response's row

// An element's size. Raises Failure for what has none.
inline size_t Bytes(TRITONSERVER_DataType type) {
  switch (type) {
    case TRITONSERVER_TYPE_BOOL:
    case TRITONSERVER_TYPE_UINT8:
    case TRITONSERVER_TYPE_INT8:
      return 1;
    case TRITONSERVER_TYPE_UINT16:
    case TRITONSERVER_TYPE_INT16:
    case TRITONSERVER_TYPE_FP16:
    case TRITONSERVER_TYPE_BF16:
      return 2;
    case TRITONSERVER_TYPE_UINT32:
    case TRITONSERVER_TYPE_INT32:
    case TRITONSERVER_TYPE_FP32:
      return 4;
    case TRITONSERVER_TYPE_UINT64:
    case TRITONSERVER_TYPE_INT64:
    case TRITONSERVER_TYPE_FP64:
      return 8;
    default:
      throw Failure("the engine answered a tensor whose elements have no fixed size");
  }
}

inline int64_t Elements(const int64_t* shape, size_t dims) {
  return std::accumulate(shape, shape + dims, int64_t{1}, std::multiplies<int64_t>());
}

// A tensor of one row, [1, ...]. Its data are of the response that it came with.
struct Tensor {
  TRITONSERVER_DataType type;
  Shape shape;
  const char* data;
};

using Row = std::map<std::string, Tensor>;

// Whether a response has so many rows.
inline bool Has(const Row& all, size_t count) {
  const Shape& shape = all.begin()->second.shape;
  return !shape.empty() && shape[0] == int64_t(count);
}

// The rows of a response that has all of them. Raises Failure where it has not.
inline std::vector<Row> Parted(const Row& all, size_t count) {
  std::vector<Row> rows(count);
  for (const auto& [name, tensor] : all) {
    if (tensor.shape.empty() || tensor.shape[0] != int64_t(count))
      throw Failure("the engine answered " + name + " for another number of rows than the " + std::to_string(count) +
                    " of a call");
    Shape shape = tensor.shape;
    shape[0] = 1;
    size_t step = Elements(shape.data(), shape.size()) * Bytes(tensor.type);
    for (size_t i = 0; i < count; ++i) rows[i][name] = {tensor.type, shape, tensor.data + i * step};
  }
  return rows;
}

// The rows of a call of so many, by their index. Raises Failure where one is missing, or one of several does not tell
// its index.
inline std::vector<Row> Ordered(std::vector<Row> rows, size_t count) {
  if (rows.size() != count)
    throw Failure(
        "the engine answered " + std::to_string(rows.size()) + " of " + std::to_string(count) + " rows of a call");
  if (count == 1) return rows;
  auto index = [](const Row& row) {
    auto found = row.find(kIndex);
    if (found == row.end() || found->second.type != TRITONSERVER_TYPE_INT32 ||
        Elements(found->second.shape.data(), found->second.shape.size()) != 1)
      throw Failure("the engine answered a row of several without int32 batch_index");
    return *reinterpret_cast<const int32_t*>(found->second.data);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return index(a) < index(b); });
  for (size_t i = 0; i < count; ++i)
    if (index(rows[i]) != int64_t(i))
      throw Failure("the engine answered no row with batch_index " + std::to_string(i) + ", or another twice");
  return rows;
}

// The shape of all rows of a tensor: as wide as the widest. Raises Failure where they do not fit together.
inline Shape Stacked(const std::vector<Row>& rows, const std::string& name) {
  const Tensor* first = nullptr;
  Shape shape;
  for (const Row& row : rows) {
    auto found = row.find(name);
    if (found == row.end()) continue;
    const Tensor& tensor = found->second;
    if (!first) shape = (first = &tensor)->shape;
    if (tensor.type != first->type || tensor.shape.size() != shape.size() || tensor.shape.empty() ||
        tensor.shape[0] != 1)
      throw Failure("the engine answered rows whose " + name + " do not fit together");
    for (size_t i = 1; i < shape.size(); ++i) shape[i] = std::max(shape[i], tensor.shape[i]);
  }
  if (first) shape[0] = rows.size();
  return shape;
}

// Copy a block of elements of so many `bytes` into the beginning of a wider one.
inline void Copy(const char* from, const int64_t* shape, char* to, const int64_t* wide, size_t dims, size_t bytes) {
  if (dims < 2 || std::equal(shape, shape + dims, wide)) {
    std::memcpy(to, from, Elements(shape, dims) * bytes);
    return;
  }
  size_t step = Elements(shape + 1, dims - 1) * bytes, wide_step = Elements(wide + 1, dims - 1) * bytes;
  for (int64_t i = 0; i < shape[0]; ++i)
    Copy(from + i * step, shape + 1, to + i * wide_step, wide + 1, dims - 1, bytes);
}

// Write all rows of a tensor in `shape`; zeros fill up shorter rows, and stand for those that lack it.
inline void Stack(const std::vector<Row>& rows, const std::string& name, const Shape& shape, size_t bytes, char* to) {
  size_t step = Elements(shape.data() + 1, shape.size() - 1) * bytes;
  std::memset(to, 0, step * rows.size());
  for (const Row& row : rows) {
    auto found = row.find(name);
    if (found != row.end())
      Copy(found->second.data, found->second.shape.data() + 1, to, shape.data() + 1, shape.size() - 1, bytes);
    to += step;
  }
}

}  // namespace backend
