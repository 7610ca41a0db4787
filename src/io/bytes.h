// What the file readers and writers share: bytes of known size read at any offset, checked sizes, quoting, atomic
// writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/dtype.h"

namespace aicf::io {

// The text as a JSON string, for messages: control characters escaped, bad UTF-8 replaced, long texts cut.
std::string quote(std::string_view text);
// The text as a JSON string, whole. Throws Error (`what` in the message) when it is not UTF-8.
std::string json_string(const std::string& text, const std::string& what);

// Product of extents × size of an element. False above 2^62, zero extents left out, so that a zero hides no overflow.
bool checked_bytes(std::span<const uint64_t> dims, DType dtype, uint64_t& bytes);

// Bytes of a size fixed at the start.
class Bytes {
 public:
  Bytes(std::string label, uint64_t size) : label_(std::move(label)), size_(size) {}
  virtual ~Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  const std::string& label() const { return label_; }  // begins each message
  uint64_t size() const { return size_; }
  // Fills `to`. REQUIRES offset + to.size() <= size().
  virtual void read(uint64_t offset, std::span<std::byte> to) const = 0;

 private:
  std::string label_;
  uint64_t size_;
};

class MemoryBytes : public Bytes {
 public:
  MemoryBytes(std::string label, std::span<const std::byte> bytes)
      : Bytes(std::move(label), bytes.size()), bytes_(bytes) {}
  void read(uint64_t offset, std::span<std::byte> to) const override;

 private:
  std::span<const std::byte> bytes_;
};

// A regular file. Read with pread, never mapped: a file that shrinks is an Error, not a signal.
class FileBytes : public Bytes {
 public:
  // Throws Error `operation("path"): …` when the file is missing, unreadable or not a regular file.
  FileBytes(const std::string& operation, const std::string& path);
  ~FileBytes() override;
  void read(uint64_t offset, std::span<std::byte> to) const override;

 private:
  struct Opened {
    std::string label;
    int descriptor;
    uint64_t size;
  };
  explicit FileBytes(Opened opened) : Bytes(std::move(opened.label), opened.size), descriptor_(opened.descriptor) {}
  static Opened open(const std::string& operation, const std::string& path);

  int descriptor_;
};

// `operation("path")`
std::string label_of(std::string_view operation, const std::string& path);
// The message of the current errno.
std::string last_error();
// Writes all of it. False, with errno set, on failure.
bool write_all(int descriptor, std::span<const std::byte> bytes);

// Writes the parts one after another to a temporary file beside `path`, syncs it, renames it over `path` and syncs the
// folder. Throws Error on failure; `path` then is as it was (unless only the last sync failed) and the temporary is
// gone.
void write_file_atomically(const std::string& label, const std::string& path,
                           std::span<const std::span<const std::byte>> parts);
// The names in a folder, in no order. Throws Error beginning with `label` when it cannot be listed.
std::vector<std::string> names_in(const std::string& label, const std::string& folder);
// Removes what write_file_atomically left in the folder when its process was killed. What another is writing stays: its
// file is locked. Throws Error as names_in().
void remove_leftovers(const std::string& label, const std::string& folder);

}  // namespace aicf::io
