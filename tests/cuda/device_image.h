// Many guarded, poisoned buffers in one piece of device memory: a whole batch of launches costs one upload and one
// download.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "aicf/tensor.h"
#include "backend/api.h"

namespace aicf::test {

class DeviceImage {
 public:
  explicit DeviceImage(backend::Backend& backend) : backend_(backend) {}

  size_t bytes() const { return bytes_.size(); }
  // The number of a new 256-byte aligned buffer between guards.
  int add(size_t bytes, unsigned char fill) {
    bytes_.resize((bytes_.size() + kGuard + 255) / 256 * 256, kGuardByte);
    buffers_.push_back({bytes_.size(), bytes});
    bytes_.resize(bytes_.size() + bytes, fill);
    return static_cast<int>(buffers_.size()) - 1;
  }
  int add(const void* data, size_t bytes) {
    const int buffer = add(bytes, 0);
    if (bytes > 0) std::memcpy(bytes_.data() + buffers_[buffer].offset, data, bytes);
    return buffer;
  }
  int add(const Tensor& tensor) { return add(tensor.data(), tensor.bytes()); }

  // A launch over these buffers; `guard` -1: none.
  void launch(const backend::PreparedKernel& kernel, std::span<const int> buffers, int guard = -1) {
    launches_.push_back({&kernel, {buffers.begin(), buffers.end()}, guard});
  }

  // Uploads the buffers as they were added, runs the launches in order, and downloads all of it.
  void run() {
    bytes_.resize(bytes_.size() + kGuard, kGuardByte);
    auto* memory = static_cast<unsigned char*>(backend_.allocate(bytes_.size()));
    std::vector<std::vector<void*>> addresses;
    std::vector<backend::BoundLaunch> bound;
    for (const Launch& l : launches_) {
      addresses.emplace_back();
      for (int buffer : l.buffers) addresses.back().push_back(memory + buffers_[buffer].offset);
      bound.push_back({l.kernel, addresses.back().data(), l.guard < 0 ? nullptr : memory + buffers_[l.guard].offset});
    }
    {
      const std::unique_ptr<backend::Queue> queue = backend_.make_queue();
      queue->upload(memory, bytes_.data(), bytes_.size());
      queue->run(bound, 0);
      queue->wait();
      queue->download(bytes_.data(), memory, bytes_.size());
    }
    backend_.release(memory);
  }

  // After run().
  const unsigned char* data(int buffer) const { return bytes_.data() + buffers_[buffer].offset; }
  // Nothing was written between this buffer and its neighbours.
  bool intact(int buffer) const {
    const Buffer& own = buffers_[buffer];
    const bool first = buffer == 0, last = buffer + 1 == static_cast<int>(buffers_.size());
    const size_t before = first ? 0 : buffers_[buffer - 1].offset + buffers_[buffer - 1].bytes;
    const size_t after = last ? bytes_.size() : buffers_[buffer + 1].offset;
    return all_guard(before, own.offset) && all_guard(own.offset + own.bytes, after);
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kGuardByte = 0xAB;
  struct Buffer {
    size_t offset = 0, bytes = 0;
  };
  struct Launch {
    const backend::PreparedKernel* kernel = nullptr;
    std::vector<int> buffers;
    int guard = -1;
  };

  bool all_guard(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      if (bytes_[i] != kGuardByte) return false;
    }
    return true;
  }

  backend::Backend& backend_;
  std::vector<unsigned char> bytes_;
  std::vector<Buffer> buffers_;
  std::vector<Launch> launches_;
};

}  // namespace aicf::test
