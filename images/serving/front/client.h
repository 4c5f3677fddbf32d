// A client's request from its arrival to its last response, and the table of all that there are.
#pragma once

#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../collector/inner.h"
#include "wave.h"

namespace front {

using backend::Check;
using backend::Now;

// Where a client's responses go. Thread-safe: one response at a time, the last one once.
//
// The last response of a client that is gone waits until a second has passed since that was seen: Triton's gRPC side
// frees the state of a cancelled stream twice whose last response comes while an earlier one is being written
// (docs/triton-backend.md). `Sweep` sends those.
class Client {
 public:
  // Raises Failure.
  Client(int64_t ticket, TRITONBACKEND_Request* request) : ticket(ticket) {
    uint32_t count;
    Check(TRITONBACKEND_RequestOutputCount(request, &count));
    for (uint32_t i = 0; i < count; ++i) {
      const char* name;
      Check(TRITONBACKEND_RequestOutputName(request, i, &name));
      wanted_.insert(name);
    }
    Check(TRITONBACKEND_ResponseFactoryNew(&factory_, request));
  }

  ~Client() { TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryDelete(factory_)); }

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const std::unordered_set<std::string>& Wanted() const { return wanted_; }

  // Send a response that `fill` writes. Nothing is sent once the last response was.
  template <class Fill>
  void Send(bool last, Fill fill) {
    std::lock_guard lock(mutex_);
    if (Due(last)) Respond(last, nullptr, fill);
  }

  // Send an error as the last response.
  void Fail(TRITONSERVER_Error* error) {
    std::lock_guard lock(mutex_);
    if (Due(true)) Respond(true, error, [](auto*) {});
  }

  // End without a response, if nothing has ended it.
  void End() {
    std::lock_guard lock(mutex_);
    if (!Due(true)) return;
    state_ = kOver;
    auto* lost = TRITONBACKEND_ResponseFactorySendFlags(factory_, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
    if (lost) TRITONSERVER_ErrorDelete(lost);
  }

  // Whether the client has left. Not known while a response of it is being sent, which may take as long as Triton likes.
  bool Gone() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() && (state_ != kOpen || Cancelled());
  }

  // End it if that is due now; whether it waits no more.
  bool Sweep() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || state_ == kOpen) return false;
    if (state_ == kOver) return true;
    if (Now() < gone_ + kLinger) return false;
    auto* error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, "the client cancelled the request");
    Respond(true, error, [](auto*) {});
    TRITONSERVER_ErrorDelete(error);
    return true;
  }

  bool Over() { return Is(kOver); }
  bool Lingers() { return Is(kLingers); }

  const int64_t ticket;

 private:
  static constexpr uint64_t kLinger = 1'000'000'000;

  enum State { kOpen, kLingers, kOver };

  bool Is(State state) {
    std::lock_guard lock(mutex_);
    return state_ == state;
  }

  bool Cancelled() {
    bool cancelled = false;
    auto* unknown = TRITONBACKEND_ResponseFactoryIsCancelled(factory_, &cancelled);
    if (unknown) TRITONSERVER_ErrorDelete(unknown);
    if (cancelled && !gone_) gone_ = Now();
    return cancelled;
  }

  // Whether a response goes out now.
  bool Due(bool last) {
    if (state_ != kOpen) return false;
    if (last && Cancelled() && Now() < gone_ + kLinger) state_ = kLingers;
    return state_ == kOpen;
  }

  template <class Fill>
  void Respond(bool last, TRITONSERVER_Error* error, Fill fill) {
    TRITONBACKEND_Response* response = nullptr;
    auto* failed = backend::Guarded([&] {
      Check(TRITONBACKEND_ResponseNewFromFactory(&response, factory_));
      fill(response);
    });
    last = last || failed;  // whatever is wrong with a response: its client must hear of it
    if (last) state_ = kOver;
    uint32_t flags = last ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0;
    auto* lost = response ? TRITONBACKEND_ResponseSend(response, flags, failed ? failed : error)
                          : TRITONBACKEND_ResponseFactorySendFlags(factory_, flags);
    for (auto* each : {failed, lost})
      if (each) TRITONSERVER_ErrorDelete(each);
  }

  std::unordered_set<std::string> wanted_;
  TRITONBACKEND_ResponseFactory* factory_;
  std::mutex mutex_;  // of what follows, and of Triton's functions that take the factory
  State state_ = kOpen;
  uint64_t gone_ = 0;  // when it was first seen that the client has left
};

using ClientPtr = std::shared_ptr<Client>;

// The clients of all fronts of the process, by ticket, until their last response. Thread-safe.
class Table {
 public:
  ClientPtr Add(TRITONBACKEND_Request* request) {
    std::lock_guard lock(mutex_);
    int64_t ticket;
    do ticket = secret_ | (++tickets_ & kNumbers);
    while (clients_.count(ticket));
    auto client = std::make_shared<Client>(ticket, request);
    clients_[client->ticket] = client;
    return client;
  }

  ClientPtr Find(int64_t ticket) {
    std::lock_guard lock(mutex_);
    auto found = clients_.find(ticket);
    return found == clients_.end() ? nullptr : found->second;
  }

  // Forget a client whose last response is sent; end it later if that waits.
  void Settle(const ClientPtr& client) {
    bool over = client->Over(), lingers = !over && client->Lingers();
    if (!over && !lingers) return;
    std::lock_guard lock(mutex_);
    if (over) clients_.erase(client->ticket);
    if (lingers && clients_.erase(client->ticket)) lingering_.push_back(client);
  }

  // End those whose last response has waited for long enough.
  void Sweep() {
    std::vector<ClientPtr> waiting;
    {
      std::lock_guard lock(mutex_);
      waiting.swap(lingering_);
    }
    for (auto& client : waiting) {
      if (client->Sweep()) continue;
      std::lock_guard lock(mutex_);
      lingering_.push_back(std::move(client));
    }
  }

 private:
  // Whoever calls the loop himself must not get others' chunks by a ticket of his own making.
  static constexpr int kBits = 24;  // as in tandem_serving/adapter/front.py
  static constexpr int64_t kNumbers = (int64_t{1} << kBits) - 1;

  static int64_t Secret() {
    std::random_device random;
    uint64_t drawn = uint64_t{random()} << 32 | random();
    return int64_t(drawn >> 1) & ~kNumbers;
  }

  std::mutex mutex_;
  const int64_t secret_ = Secret();
  int64_t tickets_ = 0;
  std::unordered_map<int64_t, ClientPtr> clients_;
  std::vector<ClientPtr> lingering_;
};

}  // namespace front
