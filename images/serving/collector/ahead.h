// What becomes of a draft that was made ahead.
#pragma once

#include "round.h"

namespace rounds {

inline bool Ahead::Useless() const {
  return std::all_of(waiting.begin(), waiting.end(), [](Round* round) { return round->Stopped(); });
}

inline void Rounds::Drafted(const std::shared_ptr<Ahead>& made, Answer answer) {
  std::vector<Tokens> drafts;
  std::string error;
  try {
    for (const Row& row : answer.Rows(made->sequences.size()))
      drafts.push_back(TokensOf(row, made->wanted[drafts.size()]));
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  answer.responses.clear();
  std::vector<Round*> waiting;
  {
    std::lock_guard lock(mutex);
    made->drafts = std::move(drafts);
    made->error = error;
    made->owned = {};
    made->ended = Now();
    waiting.swap(made->waiting);
    --flying;
    ++leaving;
  }
  for (Round* round : waiting) round->Arrived();
  LetGo();
  std::lock_guard lock(mutex);
  --leaving;
  idle.notify_all();
}

}  // namespace rounds
