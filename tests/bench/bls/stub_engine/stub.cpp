// A Triton backend that stands in for both engines of the benchmark: TensorRT-LLM's tensors, a cost model's times,
// made-up tokens. It is C++ as TensorRT-LLM's backend is, so that a call's way through the server is the same: no
// process between the server and the engine.
//
// It takes requests of one or more rows: `draft_input_ids` makes them verifications; `stop` ends the calls with the
// same request id. All rows of a request come in one response, or each in its own where stub.conf says `decoupled 1`;
// there a request of one row with `streaming` gets its tokens step by step.
// The prompt is never repeated. Sampling parameters are taken and mean nothing. `batch` rows and `max_num_tokens` tokens
// share a step, the others wait, as in an engine that was built so; `chunked_context 1`: as where that is enabled.
//
// One thread runs the steps. They begin and end at the cost model's times to the microsecond: a step begins when the
// one before it ended, or when its first request came, not when a processor had time for it.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <unordered_set>

#include "../../../../images/serving/collector/errors.h"
#include "../../../../images/serving/collector/triton.h"
#include "model.h"

namespace stub {

constexpr double kAdmission = 1e-4;  // seconds after a step's end: what an engine needs itself to look for requests

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

void SleepUntil(double moment) {
  timespec until{time_t(moment), long((moment - time_t(moment)) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr)) {
  }
}

using backend::Check;

// A file in memory that other processes read, or engines share. Raises runtime_error.
template <class T>
class Mapped {
 public:
  explicit Mapped(const std::string& path) : file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    void* at = MAP_FAILED;
    if (file >= 0 && !ftruncate(file, sizeof(T)))
      at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    value = static_cast<T*>(at);
  }

  int file;
  T* value;
};

// How much the engine has worked; ../stub.py reads it.
struct Work {
  double seconds;
  int64_t steps;
};

// stub.conf beside the library: a line `name value...` for each.
struct Settings {
  std::string role, device, meter;
  bool decoupled = false;
  StepLimits limits;
  std::vector<double> acceptance;
  Costs costs;

  // Raises runtime_error.
  explicit Settings(const std::string& path) {
    std::ifstream file(path);
    std::string line, name;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      words >> name;
      if (name == "role") words >> role;
      if (name == "device") words >> device;
      if (name == "decoupled") words >> decoupled;
      if (name == "batch") words >> limits.rows;
      if (name == "max_num_tokens") words >> limits.tokens;
      if (name == "chunked_context") words >> limits.chunked;
      if (name == "meter") words >> meter;
      if (name == "fixed") words >> costs.fixed;
      if (name == "per_sequence") words >> costs.per_sequence;
      if (name == "per_draft_token") words >> costs.per_draft_token;
      if (name == "per_prefill_token") words >> costs.per_prefill_token;
      for (double each; name == "acceptance" && words >> each;) acceptance.push_back(each);
    }
    if (role.empty() || meter.empty() || acceptance.empty() || costs.fixed <= 0 || limits.rows < 1 || limits.tokens < 1)
      throw std::runtime_error(path + ": role, meter, acceptance and fixed have to be given, and batch be 1 or more");
  }
};

// The device under the engine: where engines share one, its time is reserved first come first served.
class Device {
 public:
  explicit Device(const std::string& path) : shared_(path.empty() ? nullptr : new Mapped<double>(path)) {}

  // The end of a step of `seconds` that may begin at `begin`.
  double Reserve(double begin, double seconds) {
    if (!shared_) return begin + seconds;
    flock(shared_->file, LOCK_EX);
    double end = *shared_->value = std::max(begin, *shared_->value) + seconds;
    flock(shared_->file, LOCK_UN);
    return end;
  }

 private:
  std::unique_ptr<Mapped<double>> shared_;
};

// A request of Triton's, and the input tensors that it has.
class Inputs {
 public:
  explicit Inputs(TRITONBACKEND_Request* request) : request_(request) {}

  // int32[rows, columns], or no rows where the input is absent. Raises runtime_error.
  Matrix Get(const char* name) const {
    const void* buffer;
    const int64_t* shape;
    uint32_t dims;
    if (!Find(name, &buffer, &shape, &dims)) return {};
    return {static_cast<const int32_t*>(buffer), shape[0], dims > 1 ? shape[1] : 1};
  }

  bool Flag(const char* name) const {
    const void* buffer;
    const int64_t* shape;
    uint32_t dims;
    return Find(name, &buffer, &shape, &dims) && *static_cast<const bool*>(buffer);
  }

 private:
  bool Find(const char* name, const void** buffer, const int64_t** shape, uint32_t* dims) const {
    TRITONBACKEND_Input* input;
    if (backend::Error absent{TRITONBACKEND_RequestInput(request_, name, &input)}) return false;
    uint32_t buffers;
    uint64_t bytes;
    Check(TRITONBACKEND_InputProperties(input, nullptr, nullptr, shape, dims, &bytes, &buffers));
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    if (buffers != 1) throw std::runtime_error(std::string(name) + " is not in one buffer");
    Check(TRITONBACKEND_InputBuffer(input, 0, buffer, &bytes, &memory, &memory_id));
    return true;
  }

  TRITONBACKEND_Request* request_;
};

// A call with where its answer goes; it owns the request until then.
class Request {
 public:
  Request(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
      : arrived(Now()), instance_(instance), request_(request) {
    const char* name;
    Check(TRITONBACKEND_RequestId(request, &name));
    id = name;
  }

  // Answer all rows: in one response, cut to the longest, or in one each where the model is decoupled, as TensorRT-LLM's
  // backend does; `error` instead of them.
  void Answer(const char* error = nullptr) {
    TRITONBACKEND_ResponseFactory* factory;
    Check(TRITONBACKEND_ResponseFactoryNew(&factory, request_));
    size_t rows = std::max<size_t>(1, call.rows.size()), responses = decoupled && !error ? rows : 1;
    const backend::Error failure(error ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, error) : nullptr);
    for (size_t i = 0; i < responses; ++i) {
      TRITONBACKEND_Response* response;
      Check(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
      if (!error && !call.rows.empty()) Fill(response, i, responses);
      uint32_t flags = i + 1 == responses ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0;
      Check(TRITONBACKEND_ResponseSend(response, flags, failure.get()));
    }
    Check(TRITONBACKEND_ResponseFactoryDelete(factory));
    uint64_t from = arrived * 1e9, to = Now() * 1e9;
    Check(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, !error, from, from, to, to));
    Check(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, rows, from, from, to, to));
    Check(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
  }

  // Answer the tokens of a step, where the request streams and goes on.
  void Stream() {
    if (!streams || call.rows[0].step == sent_) return;
    Row& row = call.rows[0];
    auto fresh = row.ids.begin() + (row.step - sent_);
    std::vector<int32_t> rest(fresh, row.ids.end());
    row.ids.erase(fresh, row.ids.end());
    TRITONBACKEND_Response* response;
    Check(TRITONBACKEND_ResponseNew(&response, request_));
    Fill(response, 0, 1);
    Check(TRITONBACKEND_ResponseSend(response, 0, nullptr));
    row.ids = std::move(rest);
    sent_ = row.step;
  }

  Call call;
  double arrived;
  std::string id;
  bool decoupled = false, streams = false;

 private:
  // The rows of response `index` of so many.
  void Fill(TRITONBACKEND_Response* response, size_t index, size_t responses) const {
    bool all = responses == 1;
    auto first = call.rows.begin() + (all ? 0 : index), last = all ? call.rows.end() : first + 1;
    int64_t count = last - first, longest = 0;
    for (auto row = first; row != last; ++row) longest = std::max<int64_t>(longest, row->ids.size());
    int64_t shape[] = {count, 1, longest};
    int32_t* ids = Output(response, "output_ids", shape, 3, count * longest);
    int32_t* lengths = Output(response, "sequence_length", shape, 2, count);
    for (auto row = first; row != last; ++row) {
      std::fill(std::copy(row->ids.begin(), row->ids.end(), ids), ids + longest, 0);
      ids += longest;
      *lengths++ = row->ids.size();
    }
    if (!all) *Output(response, "batch_index", shape, 2, 1) = index;
  }

  static int32_t* Output(
      TRITONBACKEND_Response* response, const char* name, const int64_t* shape, uint32_t dims, int64_t count) {
    TRITONBACKEND_Output* output;
    Check(TRITONBACKEND_ResponseOutput(response, &output, name, TRITONSERVER_TYPE_INT32, shape, dims));
    void* buffer;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    Check(TRITONBACKEND_OutputBuffer(output, &buffer, count * sizeof(int32_t), &memory, &memory_id));
    return static_cast<int32_t*>(buffer);
  }

  TRITONBACKEND_ModelInstance* instance_;
  TRITONBACKEND_Request* request_;
  int64_t sent_ = 0;  // steps whose tokens were answered
};

using Requests = std::vector<std::unique_ptr<Request>>;

class Engine {
 public:
  explicit Engine(const Settings& settings)
      : name_("stub-" + settings.role),
        model_(settings.role == "draft", settings.acceptance),
        costs_(settings.costs),
        device_(settings.device),
        decoupled_(settings.decoupled),
        limits_(settings.limits),
        meter_(settings.meter),
        thread_([this] { Serve(); }) {}

  ~Engine() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    came_.notify_one();
    thread_.join();
  }

  // Queue a request for the engine's thread; what cannot be served is answered at once.
  void Take(std::unique_ptr<Request> request, const Inputs& inputs) {
    NameThread();
    request->decoupled = decoupled_;
    request->streams = decoupled_ && inputs.Flag("streaming");
    if (inputs.Flag("stop")) {
      {
        std::lock_guard lock(mutex_);
        stopped_.insert(request->id);
      }
      request->Answer();
      return;
    }
    try {
      auto lengths = inputs.Get("input_lengths"), output_lens = inputs.Get("request_output_len");
      auto ids = inputs.Get("input_ids"), drafted = inputs.Get("draft_input_ids");
      request->call = model_.Answer(ids, lengths.data, output_lens.data, drafted);
      for (const Row& row : request->call.rows)
        if (!limits_.chunked && row.length + row.draft_tokens > limits_.tokens)
          throw std::invalid_argument("a context of the call has more than max_num_tokens tokens");
    } catch (const std::invalid_argument& error) {
      request->Answer(error.what());
      return;
    }
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(request));
    }
    came_.notify_one();
  }

 private:
  // Threads are named, so that the engine's processor time can be told from the server's.
  void NameThread() const { prctl(PR_SET_NAME, name_.c_str()); }

  void Serve() {
    NameThread();
    prctl(PR_SET_TIMERSLACK, 1);
    for (double end = 0; Admit(end);) {
      double seconds = StepSeconds(costs_, rows_);
      end = device_.Reserve(begin_, seconds);
      SleepUntil(end);
      meter_.value->seconds += seconds;
      meter_.value->steps += 1;
      for (Row* row : rows_) row->EndStep();
      for (auto& request : active_) request->call.Done() ? request->Answer() : request->Stream();
      Leave();
    }
  }

  // Let the calls take part that came before the step begins, or a moment later; wait while there is nothing to do.
  // False: the model ends.
  bool Admit(double end) {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return ended_ || !active_.empty() || !waiting_.empty(); });
    if (ended_) return false;
    begin_ = active_.empty() ? std::max(end, waiting_.front()->arrived) : end;
    lock.unlock();
    SleepUntil(begin_ + kAdmission);
    lock.lock();
    auto in_time = [&](const auto& each) { return each->arrived <= begin_ + kAdmission; };
    auto late = std::stable_partition(waiting_.begin(), waiting_.end(), in_time);
    active_.insert(active_.end(), std::make_move_iterator(waiting_.begin()), std::make_move_iterator(late));
    waiting_.erase(waiting_.begin(), late);
    lock.unlock();
    rows_.clear();
    for (auto& request : active_)
      for (Row& row : request->call.rows)
        if (!row.Done()) rows_.push_back(&row);
    Choose(rows_, limits_, cache_);
    return true;
  }

  // Forget the calls that are done, and end those that were asked to stop.
  void Leave() {
    std::unordered_set<std::string> stopped;
    {
      std::lock_guard lock(mutex_);
      stopped.swap(stopped_);
      Drop(waiting_, stopped);
    }
    auto running = [](const auto& each) { return !each->call.Done(); };
    auto done = std::stable_partition(active_.begin(), active_.end(), running);
    for (auto each = done; each != active_.end(); ++each)
      for (const Row& row : (*each)->call.rows) cache_.Store(row);
    active_.erase(done, active_.end());
    Drop(active_, stopped);
  }

  static void Drop(Requests& requests, const std::unordered_set<std::string>& stopped) {
    auto wanted = [&](const auto& each) { return !stopped.count(each->id); };
    auto kept = std::stable_partition(requests.begin(), requests.end(), wanted);
    for (auto each = kept; each != requests.end(); ++each) {
      (*each)->call.rows.clear();
      (*each)->Answer();
    }
    requests.erase(kept, requests.end());
  }

  const std::string name_;
  const Model model_;
  const Costs costs_;
  Device device_;
  const bool decoupled_;
  const StepLimits limits_;
  Mapped<Work> meter_;
  PrefixCache cache_;
  Requests active_;
  std::vector<Row*> rows_;  // of these, that are not done
  double begin_ = 0;
  std::mutex mutex_;  // of what follows
  std::condition_variable came_;
  Requests waiting_;
  std::unordered_set<std::string> stopped_;
  bool ended_ = false;
  std::thread thread_;  // the last: it uses all of the above
};

Engine* EngineOf(TRITONBACKEND_ModelInstance* instance) {
  void* state;
  Check(TRITONBACKEND_ModelInstanceState(instance, &state));
  return static_cast<Engine*>(state);
}

}  // namespace stub

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Answered([&] {
    TRITONBACKEND_Model* model;
    TRITONBACKEND_ArtifactType type;
    const char* folder;
    backend::Check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    backend::Check(TRITONBACKEND_ModelRepository(model, &type, &folder));
    stub::Settings settings(std::string(folder) + "/1/stub.conf");
    backend::Check(TRITONBACKEND_ModelInstanceSetState(instance, new stub::Engine(settings)));
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return backend::Answered([&] { delete stub::EngineOf(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  return backend::Answered([&] {
    for (uint32_t i = 0; i < count; ++i)
      stub::EngineOf(instance)->Take(std::make_unique<stub::Request>(instance, requests[i]), stub::Inputs(requests[i]));
  });
}
}
