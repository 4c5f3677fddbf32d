// What a round is asked for: a row a sequence.
#pragma once

#include "round_tensors.h"

namespace rounds {

struct RoundInputs {
  std::vector<Input> all;
  size_t count = 1;
  int64_t width = 0;  // of the longest row
  const int32_t *ids = nullptr, *lengths = nullptr, *wanted = nullptr, *most = nullptr;
  const int64_t* sequences = nullptr;

  // Of a round's request. Raises Failure.
  void Read(TRITONBACKEND_Request* request) {
    all = InputsOf(request);
    count = all.at(0).shape.at(0);
    const Input* given = Find(all, kIds);
    if (!given || given->shape.size() != 2) throw Failure("a round needs input_ids");
    width = given->shape[1];
    ids = Data<int32_t>(all, kIds, count * width);
    lengths = Data<int32_t>(all, kLengths, count);
    sequences = Data<int64_t>(all, kSequence, count);
    wanted = Data<int32_t>(all, kLength, count);
    most = Data<int32_t>(all, kMost, count);
    for (size_t i = 0; i < count; ++i)
      if (lengths[i] < 1 || lengths[i] > width) throw Failure("a row of a round is longer than input_ids, or empty");
  }

  // The tokens of a row.
  Tokens Row(size_t row) const { return Tokens(ids + row * width, ids + row * width + lengths[row]); }

  // As wide as the longest of the rows: of a single one TensorRT-LLM takes what fills it up for tokens.
  Input Ids(const std::vector<size_t>& rows, Owned* owned) const {
    int64_t widest = 0;
    for (size_t row : rows) widest = std::max<int64_t>(widest, lengths[row]);
    Tokens chosen;
    for (size_t row : rows) chosen.insert(chosen.end(), ids + row * width, ids + row * width + widest);
    return owned->Make(kIds, TRITONSERVER_TYPE_INT32, {int64_t(rows.size()), widest}, chosen);
  }

  // Whether a call's tensors are those of the round's rows, but for their lengths.
  bool IsAlike(const std::vector<Input>& others) const {
    size_t alike = 0, ours = 0;
    for (const Input& each : all) ours += IsEngines(each.name);
    for (const Input& each : others) {
      if (each.name == kWanted) continue;
      if (!IsEngines(each.name)) return false;
      const Input* own = Find(all, each.name);
      if (!own || own->type != each.type || own->shape.size() != each.shape.size() || !Owned::IsOnHost(each)) return false;
      bool free = each.name == kIds;
      if (!free && !std::equal(each.shape.begin() + 1, each.shape.end(), own->shape.begin() + 1)) return false;
      ++alike;
    }
    if (alike != ours) return false;
    const Input &given = *Find(others, kIds), &their_lengths = *Find(others, kLengths);
    const int64_t rows = given.shape[0];
    if (Owned::One(given).bytes < rows * given.shape[1] * sizeof(int32_t) || their_lengths.shape[0] != rows) return false;
    auto* length = static_cast<const int32_t*>(Owned::One(their_lengths).data);
    return std::all_of(length, length + rows, [&](int32_t each) { return each >= 1 && each <= given.shape[1]; });
  }

  // Whether an input goes to the engines as it is.
  static bool IsEngines(const std::string& name) {
    return name != kSequence && name != kLength && name != kMost && name != kWanted;
  }
};

}  // namespace rounds
