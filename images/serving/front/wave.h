// What the speculative BLS's loop packs into a wave: many chunks, of many requests. No Triton.
#pragma once

#include <cstddef>
#include <cstring>
#include <iterator>

#include "../collector/errors.h"

namespace front {

using backend::Failure;

// A prompt's chunk, as tandem_serving/adapter/packing.py writes it: these numbers, then its token ids.
struct Chunk {
  static constexpr size_t kNumbers = 12;

  int64_t ticket, last, batch_index, accepted, draft_length, finish;
  int64_t total_accepted, total_drafted, input_tokens, output_tokens;  // told where there is a finish
  int64_t text_bytes, count;

  const int64_t* ids;  // so many as `count`
  const char* text;    // UTF-8

  const char* FinishReason() const {
    static const char* const kReasons[] = {"", "length", "end_id", "stop"};
    if (finish < 0 || finish >= int64_t(std::size(kReasons))) throw Failure("a chunk ends for no known reason");
    return kReasons[finish];
  }

  float AcceptanceRate() const { return total_drafted ? double(total_accepted) / total_drafted : 0; }
};

static_assert(offsetof(Chunk, ids) == Chunk::kNumbers * sizeof(int64_t));

// A wave's chunks, one after the other.
class Wave {
 public:
  Wave(const int64_t* numbers, size_t count, const char* text, size_t bytes)
      : numbers_(numbers), end_(numbers + count), text_(text), text_end_(text + bytes) {}

  // The next one; false: there is none. Raises Failure where the wave ends within it.
  bool Next(Chunk& chunk) {
    if (numbers_ == end_) return false;
    if (size_t(end_ - numbers_) < Chunk::kNumbers) throw Failure("a wave ends within a chunk");
    std::memcpy(&chunk, numbers_, Chunk::kNumbers * sizeof(int64_t));
    numbers_ += Chunk::kNumbers;
    if (chunk.count < 0 || chunk.count > end_ - numbers_ || chunk.text_bytes < 0 ||
        chunk.text_bytes > text_end_ - text_)
      throw Failure("a wave ends within a chunk's tokens or its text");
    chunk.ids = numbers_;
    chunk.text = text_;
    numbers_ += chunk.count;
    text_ += chunk.text_bytes;
    return true;
  }

 private:
  const int64_t *numbers_, *const end_;
  const char *text_, *const text_end_;
};

}  // namespace front
