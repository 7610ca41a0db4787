// The one pool of worker threads of the process.
#pragma once

#include <cstddef>

namespace aicf::base {

// For a scope, this thread flushes subnormals (FTZ and DAZ), rounds to nearest and masks exceptions, whatever the
// caller had set; then the caller's state is restored.
class FlushSubnormals {
 public:
  FlushSubnormals() noexcept;
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned saved_;
};

// CPUs this process may use: the affinity mask, bounded by the cgroup's quota. At least 1.
int available_cpus();

// Workers spin up to 50 µs for the next task, then park. Threads are started on first use.
class ThreadPool {
 public:
  static ThreadPool& shared();

  // Calls fn(ctx, part, parts) once for each part, on the caller and up to threads-1 workers, and returns when all are
  // done. threads 0: the default, AICF_THREADS or available_cpus(). When the pool is serving another caller the
  // parts run on this thread alone: the result is the same. Allocates nothing once threads are up. noexcept tasks only.
  using Task = void (*)(void* ctx, int part, int parts);
  void run(Task task, void* ctx, int parts, int threads = 0);

  int default_threads() const;
  void set_default_threads(int threads);  // Throws Error when < 1 or > 1024

  ~ThreadPool();

 private:
  ThreadPool();
  struct Impl;
  Impl* impl_;
};

}  // namespace aicf::base
