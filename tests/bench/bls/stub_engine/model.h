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

// What an engine takes into a step: rows (its max_batch_size) and tokens (its max_num_tokens). `chunked`: contexts may
// enter in pieces (enable_chunked_context).
struct StepLimits {
  int64_t rows = int64_t{1} << 60, tokens = int64_t{1} << 60;
  bool chunked = false;
};

// A row of a call: the tokens that it is answered, after so many steps (a verification after one).
struct Row {
  uint64_t key;
  int64_t length, held;  // of the context; tokens that are cached when the call is over
  std::vector<int32_t> ids;
  int64_t draft_tokens = 0, step = 0, steps = 0;
  int64_t position = 0, chunk = 0;  // tokens of the context that are computed or reused; those of the next step
  bool runs = false;                // it is in the next step

  bool Done() const { return step == steps; }
  bool Generates() const { return position == length && !Done(); }
  bool Ends() const { return runs && chunk > 0 && position + chunk == length; }  // its context ends in this step

  // Drop draft tokens that cannot be in the step.
  void Keep(int64_t drafts) {
    if (drafts >= draft_tokens) return;
    draft_tokens = drafts;
    ids.resize(std::min<size_t>(ids.size(), drafts + 1));
    held = length + ids.size() - 1;
  }

  // Compute so many tokens of the context in the next step. What is reused is known only now: the piece moves behind
  // it, and ends with a block (llmRequest.h, setPrepopulatedPromptLen).
  void Enter(int64_t reused, int64_t tokens) {
    if (position == 0) {
      position = reused;
      int64_t end = position + tokens;
      if (position > 0 && end < length) tokens = end / kBlock * kBlock - position;
    }
    chunk = std::min(tokens, length - position);
    runs = true;
  }

  void EndStep() {
    if (!runs) return;
    position += chunk;
    chunk = 0;
    step += position == length;
  }
};

struct Call {
  std::vector<Row> rows;

  bool Done() const {
    return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.Done(); });
  }
};

// How many tokens of each sequence the engine holds, in full blocks; the least recently used go.
class PrefixCache {
 public:
  // Tokens of a context that need not be computed; the last always is.
  int64_t Reused(const Row& row) const {
    auto found = at_.find(row.key);
    int64_t held = found == at_.end() ? 0 : found->second->second;
    return std::min(held, row.length - 1) / kBlock * kBlock;
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

// Tokens that each context gets of a step that has room for so many. Where not all fit, draft tokens are dropped that do
// not fit into the last block of their context, or into the step (fitDraftTokens).
inline std::vector<int64_t> Chunks(const std::vector<Row*>& contexts, int64_t room, int64_t longest) {
  std::vector<int64_t> chunks;
  int64_t all = 0;
  bool fit = true;
  for (const Row* row : contexts) {
    chunks.push_back(row->length - row->position);
    int64_t whole = chunks.back() + row->draft_tokens;
    all += whole;
    fit = fit && whole <= longest;
  }
  if (fit && all <= room) return chunks;
  for (int64_t& chunk : chunks) {
    if (chunk > room) chunk = room / kBlock * kBlock;
    room -= chunk;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    Row& row = *contexts[i];
    if (chunks[i] != row.length - row.position || row.draft_tokens == 0) continue;
    int64_t block = (kBlock - chunks[i] % kBlock) % kBlock, space = std::min({block, longest - chunks[i], room});
    room -= space;
    row.Keep(space);
  }
  return chunks;
}

// Decide which of these rows, in the order in which they came, are in the next step: as TensorRT-LLM does
// (capacityScheduler.cpp, GUARANTEED_NO_EVICT, then microBatchScheduler.cpp, read on 2026-11-26). Those that generate
// are, a token each; then contexts, until the first that does not fit. All of a context counts, draft tokens too, also
// what is reused.
inline void Choose(const std::vector<Row*>& rows, const StepLimits& limits, const PrefixCache& cache) {
  int64_t room = limits.rows, tokens = limits.tokens;
  std::vector<Row*> contexts;
  for (Row* row : rows) {
    row->runs = row->Generates();
    room -= row->runs;
    tokens -= row->runs;
    if (row->position < row->length) contexts.push_back(row);
  }
  if (int64_t(contexts.size()) > room) contexts.resize(std::max<int64_t>(0, room));
  if (limits.chunked) {
    auto chunks = Chunks(contexts, tokens, limits.tokens);
    for (size_t i = 0; i < contexts.size(); ++i)
      if (chunks[i] > 0) contexts[i]->Enter(cache.Reused(*contexts[i]), chunks[i]);
    return;
  }
  for (Row* row : contexts) {
    if ((tokens -= row->length + row->draft_tokens) < 0) break;
    row->Enter(cache.Reused(*row), row->length);
  }
}

// Seconds of the step.
inline double StepSeconds(const Costs& costs, const std::vector<Row*>& rows) {
  int64_t sequences = 0, draft_tokens = 0, prefill = 0;
  for (const Row* row : rows) {
    if (!row->runs) continue;
    ++sequences;
    prefill += row->chunk - row->Ends();  // the last token of a context is the step's own
    if (row->Ends()) draft_tokens += row->draft_tokens;
  }
  double milliseconds = costs.fixed + costs.per_sequence * sequences;
  return (milliseconds + costs.per_draft_token * draft_tokens + costs.per_prefill_token * prefill) * 1e-3;
}

}  // namespace stub
