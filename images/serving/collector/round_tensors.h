// Tensors of rounds: their names, and how rows are picked from them.
#pragma once

#include <deque>

#include "engine_call.h"
#include "reply.h"

namespace rounds {

using namespace backend;

constexpr const char *kIds = "input_ids", *kLengths = "input_lengths", *kWanted = "request_output_len";
constexpr const char *kDrafted = "draft_input_ids", *kLeast = "min_tokens", *kStop = "stop";
constexpr const char *kSequence = "round_sequence", *kLength = "round_draft_length", *kMost = "round_most";
constexpr const char *kDraftIds = "round_draft_ids", *kDraftLength = "round_draft_lengths";
constexpr const char *kDraftTime = "round_draft_ns", *kTargetTime = "round_target_ns";
constexpr const char *kGroup = "round_group", *kMembers = "round_members";
constexpr const char *kTokens = "output_ids", *kCount = "sequence_length";

using Tokens = std::vector<int32_t>;

// Tensors of our own, which live as long as it.
class Owned {
 public:
  template <class T>
  Input Make(const char* name, TRITONSERVER_DataType type, Shape shape, const std::vector<T>& values) {
    auto* bytes = reinterpret_cast<const char*>(values.data());
    buffers_.emplace_back(bytes, bytes + values.size() * sizeof(T));
    return {name, type, std::move(shape), {{buffers_.back().data(), buffers_.back().size()}}};
  }

  // Some rows of a tensor. Raises Failure.
  Input Gather(const Input& all, const std::vector<size_t>& rows) {
    Shape shape = all.shape;
    size_t step = One(all).bytes / std::max<int64_t>(1, shape.at(0));
    std::vector<char> chosen;
    for (size_t row : rows) {
      auto* from = static_cast<const char*>(One(all).data) + row * step;
      chosen.insert(chosen.end(), from, from + step);
    }
    shape[0] = rows.size();
    return Make(all.name.c_str(), all.type, std::move(shape), chosen);
  }

  static bool IsOnHost(const Input& input) {
    return input.pieces.size() == 1 && input.pieces[0].memory != TRITONSERVER_MEMORY_GPU;
  }

  // A tensor's data in one piece, on the host. Raises Failure.
  static const Piece& One(const Input& input) {
    if (input.pieces.size() != 1) throw Failure(input.name + " is not in one buffer");
    const Piece& piece = input.pieces[0];
    Readable(input.name, piece.data, piece.memory);
    return piece;
  }

 private:
  std::deque<std::vector<char>> buffers_;
};

inline const Input* Find(const std::vector<Input>& inputs, const std::string& name) {
  auto found = std::find_if(inputs.begin(), inputs.end(), [&](const Input& each) { return each.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

// The data of an input. Raises Failure where it is absent, or shorter than so many elements.
template <class T>
const T* Data(const std::vector<Input>& inputs, const std::string& name, size_t count) {
  const Input* input = Find(inputs, name);
  if (!input || Owned::One(*input).bytes < count * sizeof(T)) throw Failure("a round needs " + name + " of each row");
  return static_cast<const T*>(Owned::One(*input).data);
}

// The tokens of a row of an engine's answer, of which so many were asked for. Raises Failure, also where there are more:
// what an engine repeats of its input would be taken for its own.
inline Tokens TokensOf(const Row& row, int64_t asked) {
  auto ids = row.find(kTokens), count = row.find(kCount);
  if (ids == row.end() || count == row.end() || ids->second.type != TRITONSERVER_TYPE_INT32 ||
      count->second.type != TRITONSERVER_TYPE_INT32)
    throw Failure("the engine's response lacks output_ids or sequence_length: check the engine model");
  auto* from = reinterpret_cast<const int32_t*>(ids->second.data);
  if (Elements(count->second.shape.data(), count->second.shape.size()) < 1) return {};
  int64_t length = *reinterpret_cast<const int32_t*>(count->second.data);
  if (length > asked)
    throw Failure(
        "an engine answered " + std::to_string(length) + " tokens where " + std::to_string(asked) +
        " were asked for: it must take exclude_input_in_output");
  int64_t most = Elements(ids->second.shape.data(), ids->second.shape.size());
  return Tokens(from, from + std::min(std::max<int64_t>(length, 0), most));
}

// The outputs that are asked of an engine, of so many rows.
inline std::vector<std::string> NamesOf(size_t rows) {
  std::vector<std::string> names{kTokens, kCount};
  if (rows > 1) names.push_back(kIndex);
  return names;
}

}  // namespace rounds
