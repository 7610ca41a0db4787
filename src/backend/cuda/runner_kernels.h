// The kernels that a runner adds to a plan: the first moves staged feeds, or a batch of examples, into the inputs, the
// last delivers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <iterator>

namespace aicf::backend::cuda {

// Device words of a runner.
struct Counters {
  uint64_t fed = 0;      // steps whose feeds were staged: its parity is the staging slot in use
  uint64_t steps = 0;    // done
  uint64_t batches = 0;  // of the examples, taken
};

// The kernel that takes a batch is passed by value: the examples of batch b are rows[b % slots * batch …].
struct Batches {
  struct Column {
    const char* rows;
    char* to;
    uint64_t row_bytes;
  };
  Column columns[32];
  uint32_t count;
  uint32_t batch;
  uint64_t slots;
  const int32_t* rows;
  const Counters* counters;
};
inline constexpr size_t kMaxColumns = std::size(Batches{}.columns);

// Host words that the device writes, and the host reads without waiting.
struct Status {
  uint64_t done = 0;        // the last step that is done
  int64_t error = 0;        // the error word after it, until it is cleared
  uint64_t error_step = 0;  // the first step after which it was set
  int64_t error_named = 0;  // that step as the program counts them, or 0
};

inline constexpr int kMaxScalars = 64;

// What the last kernel is passed by value.
struct Delivery {
  struct Piece {
    const void* from;
    uint32_t offset;  // in the ring's slot
    uint32_t bytes;
  };
  Piece pieces[kMaxScalars];
  uint32_t count;
  uint32_t slot_bytes;
  uint64_t slots;
  char* ring;
  Counters* counters;
  Status* status;
  const int64_t* error;        // or null
  const int64_t* error_named;  // or null
  int32_t staged;              // the step has staged feeds
  int32_t batched;             // or a batch of the examples
};

// Enqueues the copy of slot `counters->fed % 2` (of `bytes`, a multiple of 16, at slots + parity * bytes) to `to`.
void enqueue_stage(const void* slots, size_t bytes, void* to, const Counters* counters, cudaStream_t stream);
void enqueue_batch(const Batches& batches, cudaStream_t stream);
void enqueue_delivery(const Delivery& delivery, cudaStream_t stream);

}  // namespace aicf::backend::cuda
