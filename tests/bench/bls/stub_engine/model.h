// The stub engine without Triton: made-up tokens (as in ../tokens.py) and the cost model (as in ../in_flight.py).
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace stub {

constexpr int kKeyTokens = 16, kFirst = 300, kLast = 2000, kBlock = 32;
constexpr size_t kCachedSequences = 4096;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15, kCoin = 0xD1B54A32D192ED03, kPrime = 0x100000001B3;

inline uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

inline uint64_t Key(const int32_t* ids) {
  uint64_t sum = 0, power = 1;
  for (int i = 0; i < kKeyTokens; ++i) sum += static_cast<uint64_t>(ids[i]) * (power *= kPrime);
  return Mix(sum);
}

inline int32_t TrueToken(uint64_t key, int64_t position) {
  return kFirst + Mix(key + static_cast<uint64_t>(position) * kGolden) % (kLast - kFirst);
}

inline bool Agrees(uint64_t key, int64_t position, double alpha) {
  return (Mix((key ^ kCoin) + static_cast<uint64_t>(position) * kCoin) >> 11) * 0x1p-53 < alpha;
}

// Milliseconds of a step: fixed, and for each sequence in it, draft token verified and token prefilled.
struct Costs {
  double fixed = 0, per_sequence = 0, per_draft_token = 0, per_prefill_token = 0;
};

// int32[rows, columns] of a request's tensor.
struct Matrix {
  const int32_t* data = nullptr;
  int64_t rows = 0, columns = 0;
  const int32_t* operator[](int64_t row) const { return data + row * columns; }
};

// A row of a call: the tokens that it is answered, after so many steps (a verification after one).
struct Row {
  uint64_t key;
  int64_t length, held;  // of the prompt; tokens that are cached when the call is over
  std::vector<int32_t> ids;
  int64_t draft_tokens = 0, prefill = 0, step = 0, steps = 0;
  bool entered = false;  // it has a place in the engine's batch

  bool Runs() const { return entered && step < steps; }
};

struct Call {
  std::vector<Row> rows;

  bool Done() const {
    return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.step == row.steps; });
  }
};

// How many tokens of each sequence the engine holds, in full blocks; the least recently used go.
class PrefixCache {
 public:
  int64_t Missing(const Row& row) const {
    auto found = at_.find(row.key);
    int64_t held = found == at_.end() ? 0 : found->second->second;
    return row.length - 1 - std::min(held, row.length - 1) / kBlock * kBlock;
  }

  void Store(const Row& row) {
    auto found = at_.find(row.key);
    if (found != at_.end()) held_.erase(found->second);
    at_[row.key] = held_.insert(held_.end(), {row.key, row.held});
    if (held_.size() > kCachedSequences) {
      at_.erase(held_.front().first);
      held_.pop_front();
    }
  }

 private:
  std::list<std::pair<uint64_t, int64_t>> held_;  // the oldest first
  std::unordered_map<uint64_t, std::list<std::pair<uint64_t, int64_t>>::iterator> at_;
};

// A model's answers. Its draft's tokens are the true ones with probability alpha, which a sequence's key chooses.
class Model {
 public:
  Model(bool is_draft, std::vector<double> alphas) : is_draft_(is_draft), alphas_(std::move(alphas)) {}

  // The answer to input_ids, input_lengths[B], request_output_len[B] and draft_input_ids (no rows: none).
  Call Answer(Matrix ids, const int32_t* lengths, const int32_t* output_lens, Matrix drafted) const {
    Call call;
    for (int64_t i = 0; i < ids.rows; ++i) {
      if (lengths[i] < kKeyTokens || lengths[i] > ids.columns)
        throw std::invalid_argument("the stub engine needs prompts of at least 16 tokens");
      Row row{Key(ids[i]), lengths[i], 0, {}};
      if (drafted.rows > 0)
        Verify(row, drafted[i], drafted.columns, output_lens[i]);
      else
        Generate(row, output_lens[i]);
      call.rows.push_back(std::move(row));
    }
    return call;
  }

 private:
  void Verify(Row& row, const int32_t* drafted, int64_t count, int64_t output_len) const {
    int64_t accepted = 0, bound = std::min(count, output_len - 1);
    while (accepted < bound && drafted[accepted] == TrueToken(row.key, row.length + accepted)) ++accepted;
    for (int64_t i = 0; i <= accepted; ++i) row.ids.push_back(TrueToken(row.key, row.length + i));
    row.held = row.length + accepted;
    row.draft_tokens = count;
    row.steps = 1;
  }

  void Generate(Row& row, int64_t output_len) const {
    double alpha = alphas_[row.key % alphas_.size()];
    int64_t right = output_len;  // leading tokens that are true: what comes after a wrong one is not used again
    for (int64_t i = 0; i < output_len; ++i) {
      int32_t id = TrueToken(row.key, row.length + i);
      if (is_draft_ && !Agrees(row.key, row.length + i, alpha)) {
        right = std::min(right, i);
        id = kFirst + (id - kFirst + 1) % (kLast - kFirst);
      }
      row.ids.push_back(id);
    }
    row.held = row.length + std::min(right, output_len - 1);
    row.steps = output_len;
  }

  bool is_draft_;
  std::vector<double> alphas_;
};

// Seconds of the step that these calls take together.
template <class Calls>
double StepSeconds(const Costs& costs, const Calls& calls) {
  int64_t sequences = 0, draft_tokens = 0, prefill = 0;
  for (const auto& each : calls) {
    for (const Row& row : each->call.rows) {
      if (!row.Runs()) continue;
      ++sequences;
      if (row.step == 0) {
        draft_tokens += row.draft_tokens;
        prefill += row.prefill;
      }
    }
  }
  double milliseconds = costs.fixed + costs.per_sequence * sequences;
  return (milliseconds + costs.per_draft_token * draft_tokens + costs.per_prefill_token * prefill) * 1e-3;
}

}  // namespace stub
