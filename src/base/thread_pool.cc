// Workers claim part numbers from one atomic ticket; nothing is queued, nothing is allocated per run.
#include "base/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "aicf/error.h"

namespace aicf::base {
namespace {

constexpr int kMaxThreads = 1024;
constexpr std::chrono::microseconds kSpin(50);
// Round to nearest, exceptions masked, flush-to-zero and denormals-are-zero: every thread computes the same bits.
constexpr unsigned kKernelMxcsr = 0x1F80u | 0x8000u | 0x0040u;

// True as soon as ready() is; false after kSpin.
template <class Ready>
bool spin_until(const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

// Threads started in the scope take no signals: those are the caller's to handle.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t saved_;
};

int threads_from_environment() {
  const char* text = std::getenv("AICF_THREADS");
  if (text == nullptr || *text == '\0') return std::min(available_cpus(), kMaxThreads);
  int threads = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, threads);
  if (parsed.ec != std::errc() || parsed.ptr != end || threads < 1 || threads > kMaxThreads) {
    throw Error("AICF_THREADS: expected a number from 1 to " + std::to_string(kMaxThreads) + ", got \"" + text + "\"",
                "unset AICF_THREADS to use every CPU available");
  }
  return threads;
}

}  // namespace

FlushSubnormals::FlushSubnormals() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kKernelMxcsr); }
FlushSubnormals::~FlushSubnormals() { _mm_setcsr(saved_); }

struct ThreadPool::Impl {
  struct Job {
    Task task;
    void* ctx;
    int parts;
  };
  struct alignas(64) Worker {
    std::atomic<uint32_t> parked{0};
    bool spins = false;
    std::thread thread;
  };

  // High half: the run's number. Low half: parts not yet claimed. A claim is a compare-and-swap of the whole, so it
  // fails when the fields below may have been rewritten for another run since they were read.
  alignas(64) std::atomic<uint64_t> ticket{0};
  std::atomic<Task> task{nullptr};
  std::atomic<void*> ctx{nullptr};
  std::atomic<int> parts{0};
  std::atomic<int> helpers{0};  // workers with a lower index may claim
  alignas(64) std::atomic<uint32_t> done{0};
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::atomic<bool> stopping{false};
  std::atomic<int> default_threads{0};           // 0: not known yet
  std::vector<std::unique_ptr<Worker>> workers;  // changed only by the holder of `busy`

  bool has_work(int worker) const {
    return static_cast<uint32_t>(ticket.load(std::memory_order_seq_cst)) != 0 &&
           worker < helpers.load(std::memory_order_acquire);
  }

  bool claim(int worker, Job& job, int& part) {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(seen) != 0) {
      job = {task.load(std::memory_order_acquire), ctx.load(std::memory_order_acquire),
             parts.load(std::memory_order_acquire)};
      if (worker >= helpers.load(std::memory_order_acquire)) return false;
      if (ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        part = job.parts - static_cast<int>(static_cast<uint32_t>(seen));
        return true;
      }
    }
    return false;
  }

  // Runs parts until none is left. The caller's index is -1.
  void serve(int worker) {
    Job job;
    int part = 0;
    while (claim(worker, job, part)) {
      job.task(job.ctx, part, job.parts);
      const uint32_t finished = done.fetch_add(1, std::memory_order_seq_cst) + 1;
      if (finished == static_cast<uint32_t>(job.parts) && worker >= 0) done.notify_one();
    }
  }

  void work(Worker& self, int index) {
    _mm_setcsr(kKernelMxcsr);
    const auto ready = [&] { return has_work(index) || stopping.load(std::memory_order_seq_cst); };
    while (!stopping.load(std::memory_order_acquire)) {
      serve(index);
      if (self.spins && spin_until(ready)) continue;
      // Either this sees the new ticket, or the caller that published it sees `parked`.
      self.parked.store(1, std::memory_order_seq_cst);
      if (!ready()) self.parked.wait(1, std::memory_order_seq_cst);
      self.parked.store(0, std::memory_order_seq_cst);
    }
  }

  static void wake(Worker& worker) {
    if (worker.parked.load(std::memory_order_seq_cst) == 0) return;
    worker.parked.store(0, std::memory_order_seq_cst);
    worker.parked.notify_one();
  }

  // Starts workers up to `count`; fewer when the system refuses more. Only CPUs there are may be spun on.
  int ensure_workers(int count) {
    if (static_cast<int>(workers.size()) >= count) return count;
    const int cpus = available_cpus();
    const BlockSignals block;
    while (static_cast<int>(workers.size()) < count) {
      const int index = static_cast<int>(workers.size());
      auto worker = std::make_unique<Worker>();
      worker->spins = index + 1 < cpus;
      Worker& self = *worker;
      try {
        worker->thread = std::thread([this, &self, index] { work(self, index); });
      } catch (const std::system_error&) {
        break;
      }
      workers.push_back(std::move(worker));
    }
    return std::min(count, static_cast<int>(workers.size()));
  }

  // REQUIRES: `busy` is held.
  void run(const Job& job, int count) {
    const int workers_used = ensure_workers(count);
    done.store(0, std::memory_order_relaxed);
    task.store(job.task, std::memory_order_release);
    ctx.store(job.ctx, std::memory_order_release);
    parts.store(job.parts, std::memory_order_release);
    helpers.store(workers_used, std::memory_order_release);
    const uint64_t number = (ticket.load(std::memory_order_relaxed) >> 32) + 1;
    ticket.store((number << 32) | static_cast<uint32_t>(job.parts), std::memory_order_seq_cst);
    for (int i = 0; i < workers_used; ++i) wake(*workers[i]);

    serve(-1);
    const auto all_done = [&] { return done.load(std::memory_order_acquire) == static_cast<uint32_t>(job.parts); };
    const bool spins = workers_used > 0 && workers[workers_used - 1]->spins;
    if (spins && spin_until(all_done)) return;
    for (uint32_t seen; (seen = done.load(std::memory_order_seq_cst)) != static_cast<uint32_t>(job.parts);) {
      done.wait(seen, std::memory_order_seq_cst);
    }
  }
};

ThreadPool::ThreadPool() : impl_(new Impl) { impl_->workers.reserve(kMaxThreads); }

ThreadPool::~ThreadPool() {
  impl_->stopping.store(true, std::memory_order_seq_cst);
  for (auto& worker : impl_->workers) Impl::wake(*worker);
  for (auto& worker : impl_->workers) worker->thread.join();
  delete impl_;
}

ThreadPool& ThreadPool::shared() {
  static ThreadPool pool;
  return pool;
}

int ThreadPool::default_threads() const {
  int threads = impl_->default_threads.load(std::memory_order_relaxed);
  if (threads == 0) {
    threads = threads_from_environment();
    int unset = 0;
    if (!impl_->default_threads.compare_exchange_strong(unset, threads)) threads = unset;
  }
  return threads;
}

void ThreadPool::set_default_threads(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    throw Error("threads: expected 1 to " + std::to_string(kMaxThreads) + ", got " + std::to_string(threads));
  }
  impl_->default_threads.store(threads, std::memory_order_relaxed);
}

void ThreadPool::run(Task task, void* ctx, int parts, int threads) {
  if (parts <= 0) return;
  const FlushSubnormals flush;
  if (threads <= 0 && parts > 1) threads = default_threads();
  const int count = std::min({threads, parts, kMaxThreads}) - 1;
  if (count <= 0 || impl_->busy.test_and_set(std::memory_order_acquire)) {
    for (int part = 0; part < parts; ++part) task(ctx, part, parts);
    return;
  }
  const std::unique_ptr<std::atomic_flag, void (*)(std::atomic_flag*)> release(
      &impl_->busy, [](std::atomic_flag* busy) { busy->clear(std::memory_order_release); });
  impl_->run({task, ctx, parts}, count);
}

}  // namespace aicf::base
