#include "backend/cuda/matmul_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "backend/cuda/cache.h"
#include "backend/cuda/error.h"

namespace aicf::backend::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Of the library's list: taken by estimate, and timed.
constexpr int kEstimated = 16;
constexpr size_t kTimed = 8;
// One timing is a captured run of launches, as a replayed plan makes them, of about this length.
constexpr double kTimedMicroseconds = 200;
constexpr int kMostLaunches = 20;
constexpr int kRepetitions = 7;
// A later candidate must be so much faster to be taken: less is noise.
constexpr double kFaster = 0.98;

// Enqueues a matmul; false when it is refused.
using Run = std::function<bool(cudaStream_t stream, void* const* buffers)>;

// Stream, events and memory of its own: nothing that a program owns is touched.
class Scratch {
 public:
  explicit Scratch(const MatmulBytes& bytes) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "tuning");
    check(cudaEventCreate(&begin_), "tuning");
    check(cudaEventCreate(&end_), "tuning");
    for (size_t i = 0; i < bytes.size(); ++i) ok_ = ok_ && allocate(i, bytes[i]);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (void* buffer : buffers_) cudaFree(buffer);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  // False when there is not that much memory.
  bool ok() const { return ok_; }

  // The workspace's size; false when there is not that much memory.
  bool reserve(size_t bytes) { return bytes <= workspace_bytes_ || allocate(3, bytes); }

  // Whether it runs at all. Library set-up that its first launch needs is done here.
  bool runs(const Run& run) {
    if (!run(stream_, buffers_)) {
      cudaGetLastError();
      return false;
    }
    check(cudaStreamSynchronize(stream_), "trying a matmul");
    return true;
  }

  // Microseconds of one run inside a graph; nothing when it cannot be captured. REQUIRES: runs() was true.
  std::optional<double> time(const Run& run) {
    check(cudaEventRecord(begin_, stream_), "tuning");
    run(stream_, buffers_);
    const double once = elapsed();
    const int launches = std::clamp(static_cast<int>(kTimedMicroseconds / std::max(once, 1.0)), 1, kMostLaunches);
    const std::unique_ptr<CUgraphExec_st, Destroy> graph(capture(run, launches));
    if (graph == nullptr) return std::nullopt;
    std::vector<double> times;
    for (int i = -1; i < kRepetitions; ++i) {  // the first warms up
      check(cudaEventRecord(begin_, stream_), "tuning");
      check(cudaGraphLaunch(graph.get(), stream_), "tuning");
      const double all = elapsed();
      if (i >= 0) times.push_back(all / launches);
    }
    std::nth_element(times.begin(), times.begin() + kRepetitions / 2, times.end());
    return times[kRepetitions / 2];
  }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };

  bool allocate(size_t i, size_t bytes) {
    if (buffers_[i] != nullptr) check(cudaFree(buffers_[i]), "tuning");
    buffers_[i] = nullptr;
    if (const cudaError_t status = cudaMalloc(&buffers_[i], std::max<size_t>(bytes, 1)); status != cudaSuccess) {
      if (status != cudaErrorMemoryAllocation) check(status, "allocating scratch memory");
      cudaGetLastError();
      return false;
    }
    if (i == 3) workspace_bytes_ = bytes;
    // Small numbers in every dtype: a product of zeros takes less power, and so less time, than a real one.
    check(cudaMemsetAsync(buffers_[i], 0x3c, bytes, stream_), "tuning");
    return true;
  }

  double elapsed() {
    check(cudaEventRecord(end_, stream_), "tuning");
    check(cudaEventSynchronize(end_), "timing a matmul");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "tuning");
    return 1000.0 * static_cast<double>(milliseconds);
  }

  cudaGraphExec_t capture(const Run& run, int launches) {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "tuning");
    bool ok = true;
    for (int i = 0; i < launches && ok; ++i) ok = run(stream_, buffers_);
    cudaGraph_t graph = nullptr;
    ok = cudaStreamEndCapture(stream_, &graph) == cudaSuccess && ok;
    cudaGraphExec_t ready = nullptr;
    if (ok && cudaGraphInstantiate(&ready, graph, 0) != cudaSuccess) ready = nullptr;
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    return ready;
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  void* buffers_[4] = {};
  size_t workspace_bytes_ = 0;
  bool ok_ = true;
};

bool from_hex(const std::string& text, cublasLtMatmulAlgo_t& algo) {
  unsigned char bytes[sizeof algo];
  if (text.size() != 2 * sizeof algo) return false;
  for (size_t i = 0; i < sizeof algo; ++i) {
    const std::string digits = text.substr(2 * i, 2);
    if (digits.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
    bytes[i] = static_cast<unsigned char>(std::stoi(digits, nullptr, 16));
  }
  std::memcpy(&algo, bytes, sizeof algo);
  return true;
}

class Budget {
 public:
  explicit Budget(double* seconds) : left_(seconds), begin_(Clock::now()) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget() {
    if (left_ != nullptr) *left_ -= spent();
  }
  bool is_spent() const { return left_ != nullptr && spent() >= *left_; }

 private:
  double spent() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double* left_;
  Clock::time_point begin_;
};

Run run_of(const Product& product, const Algorithm& algorithm) {
  return [&](cudaStream_t stream, void* const* buffers) {
    return product.run(algorithm, buffers, stream) == CUBLAS_STATUS_SUCCESS;
  };
}

bool runs(Scratch& scratch, const Product& product, const Algorithm& algorithm) {
  return scratch.reserve(algorithm.workspace_bytes) && scratch.runs(run_of(product, algorithm));
}

std::optional<Algorithm> by_estimate(const Product& product, Scratch& scratch) {
  for (const Algorithm& candidate : product.candidates(kEstimated)) {
    // Without memory to try it on, the library's word is all there is.
    if (!scratch.ok() || runs(scratch, product, candidate)) return candidate;
  }
  return std::nullopt;
}

std::optional<Algorithm> by_measurement(const Product& product, Scratch& scratch, const Budget& budget) {
  std::optional<Algorithm> best;
  std::vector<Algorithm> candidates = product.candidates(kEstimated);
  double best_time = 0;
  size_t timed = 0;
  for (const Algorithm& candidate : candidates) {
    if (timed == kTimed) break;
    if (best && budget.is_spent()) break;
    if (!runs(scratch, product, candidate)) continue;
    const std::optional<double> time = scratch.time(run_of(product, candidate));
    if (!time) continue;
    ++timed;
    if (best && *time >= kFaster * best_time) continue;
    best = candidate;
    best_time = *time;
  }
  return best;
}

std::optional<Algorithm> from_text(const Product& product, Scratch& scratch, const std::string& text) {
  Algorithm known;
  if (!from_hex(text, known.algo)) return std::nullopt;
  // Without memory to try it on, that it ran before is all there is.
  if (!product.fits(known) || (scratch.ok() && !runs(scratch, product, known))) return std::nullopt;
  return known;
}

std::optional<Algorithm> choose_anew(const Product& product, const MatmulBytes& bytes, const Tuning& tuning,
                                     const std::string& key) {
  const Budget budget(tuning.measure ? tuning.budget_s : nullptr);
  Scratch scratch(bytes);
  if (!tuning.measure) return by_estimate(product, scratch);
  if (std::optional<Algorithm> known = from_text(product, scratch, read_cache("matmul", key))) return known;
  const bool timed = scratch.ok() && !budget.is_spent();
  const std::optional<Algorithm> best =
      timed ? by_measurement(product, scratch, budget) : by_estimate(product, scratch);
  // Whatever was taken is kept, also when time ran out: the next process is to give the same bits.
  if (best) write_cache("matmul", key, text_of(*best));
  return best;
}

// Two timings at once would disturb each other.
std::mutex& timing() {
  static std::mutex mutex;
  return mutex;
}

// What `make` finds is kept by device and key, for the life of the process.
template <class Make>
std::optional<Algorithm> kept(const std::string& key, const Make& make) {
  // By device too: the first run on each sets the library up.
  static auto& known = *new std::map<std::pair<int, std::string>, Algorithm>;
  const std::lock_guard<std::mutex> lock(timing());
  if (const auto it = known.find({blas_lt().device, key}); it != known.end()) return it->second;
  const std::optional<Algorithm> chosen = make();
  if (chosen) known.emplace(std::pair(blas_lt().device, key), *chosen);
  return chosen;
}

std::string key_of(const Product& product) {
  return fmt::format("matmul {} on {}", product.key(), blas_lt().description);
}

}  // namespace

std::string text_of(const Algorithm& algorithm) {
  unsigned char bytes[sizeof algorithm.algo];
  std::memcpy(bytes, &algorithm.algo, sizeof bytes);
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<int> fastest(const std::vector<MatmulRun>& ways, const MatmulBytes& bytes, size_t workspace_bytes,
                           const Tuning& tuning) {
  const std::lock_guard<std::mutex> lock(timing());
  const Budget budget(tuning.budget_s);
  if (budget.is_spent()) return std::nullopt;
  Scratch scratch(bytes);
  if (!scratch.ok() || !scratch.reserve(workspace_bytes)) return std::nullopt;
  std::optional<int> best;
  double best_time = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    const Run run = [&](cudaStream_t stream, void* const* buffers) {
      ways[i](stream, buffers);
      return true;
    };
    scratch.runs(run);
    const std::optional<double> time = scratch.time(run);
    if (!time || (best && *time >= kFaster * best_time)) continue;
    best = static_cast<int>(i);
    best_time = *time;
  }
  return best;
}

std::optional<Algorithm> choose_algorithm(const Product& product, const MatmulBytes& bytes, const Tuning& tuning) {
  const std::string key = key_of(product) + (tuning.measure ? ", measured" : "");
  return kept(key, [&] { return choose_anew(product, bytes, tuning, key); });
}

std::optional<Algorithm> known_algorithm(const Product& product, const MatmulBytes& bytes, const std::string& text) {
  return kept(key_of(product) + ", known " + text, [&] {
    Scratch scratch(bytes);
    return from_text(product, scratch, text);
  });
}

}  // namespace aicf::backend::cuda
