// Files through file descriptors: reading that survives a shrinking file, writing that survives a crash.
#include "io/bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "aicf/error.h"

namespace aicf::io {

using nlohmann::json;

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 200;
  std::string cut(text.substr(0, kLongest));
  if (cut.size() < text.size()) cut += "...";
  return json(cut).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_string(const std::string& text, const std::string& what) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw Error(fmt::format("{}: expected UTF-8, got {}", what, quote(text)));
  }
}

bool checked_bytes(std::span<const uint64_t> dims, DType dtype, uint64_t& bytes) {
  constexpr uint64_t kMax = uint64_t{1} << 62;
  uint64_t product = size_of(dtype);
  bool empty = false;
  for (uint64_t d : dims) {
    empty |= d == 0;
    if (d > 0 && (__builtin_mul_overflow(product, d, &product) || product > kMax)) return false;
  }
  bytes = empty ? 0 : product;
  return true;
}

void MemoryBytes::read(uint64_t offset, std::span<std::byte> to) const {
  if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
}

std::string label_of(std::string_view operation, const std::string& path) {
  return fmt::format("{}({})", operation, quote(path));
}

std::string last_error() { return std::generic_category().message(errno); }

FileBytes::FileBytes(const std::string& operation, const std::string& path) : FileBytes(open(operation, path)) {}

FileBytes::Opened FileBytes::open(const std::string& operation, const std::string& path) {
  Opened opened{label_of(operation, path), -1, 0};
  // Non-blocking, or a FIFO without a writer would hang here; regular files do not care.
  opened.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened.descriptor < 0) throw Error(fmt::format("{}: cannot open: {}", opened.label, last_error()));
  struct stat info;
  const bool known = fstat(opened.descriptor, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    const std::string got = known ? "something else (a folder, pipe or device)" : last_error();
    close(opened.descriptor);
    throw Error(fmt::format("{}: expected a regular file, got {}", opened.label, got));
  }
  opened.size = static_cast<uint64_t>(info.st_size);
  return opened;
}

FileBytes::~FileBytes() { close(descriptor_); }

void FileBytes::read(uint64_t offset, std::span<std::byte> to) const {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t n = pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(fmt::format("{}: cannot read: {}", label(), last_error()));
    if (n == 0) {
      throw Error(fmt::format("{}: expected {} bytes, got {}: the file shrank while it was read", label(), size(),
                              offset + done));
    }
    done += static_cast<size_t>(n);
  }
}

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

namespace {

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

constexpr const char* kTemporaryPrefix = ".aicf-";
constexpr const char* kTemporarySuffix = ".tmp";

// Creates a file of a new name in the folder, locked: the lock goes with the process, and tells who may remove it.
int create_temporary(const std::string& folder, std::string& path) {
  static std::atomic<uint64_t> count{0};
  for (;;) {
    path = fmt::format("{}/{}{}-{}{}", folder, kTemporaryPrefix, getpid(), count++, kTemporarySuffix);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) {
      if (errno == EEXIST) continue;  // a crashed process of the same id left one behind
      return descriptor;
    }
    // Where there are no locks nobody removes it. Else who cleans up may have come between the two calls.
    struct stat info;
    const bool taken = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && fstat(descriptor, &info) == 0 && info.st_nlink > 0) return descriptor;
    close(descriptor);
  }
}

}  // namespace

void write_file_atomically(const std::string& label, const std::string& path,
                           std::span<const std::span<const std::byte>> parts) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  const auto fail = [&](const char* step) { throw Error(fmt::format("{}: cannot {}: {}", label, step, last_error())); };

  const Descriptor folder_descriptor{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder_descriptor.value < 0) fail("open its folder");
  std::string temporary;
  Descriptor file{create_temporary(folder, temporary)};
  if (file.value < 0) fail("create a file in its folder");

  const char* failed = nullptr;
  for (const auto& part : parts) {
    if (!write_all(file.value, part)) failed = "write";
    if (failed) break;
  }
  if (!failed && fsync(file.value) != 0) failed = "sync";
  if (!failed && close(std::exchange(file.value, -1)) != 0) failed = "close";
  if (!failed && rename(temporary.c_str(), path.c_str()) != 0) failed = "rename the finished file";
  if (failed) {
    const int cause = errno;
    unlink(temporary.c_str());
    errno = cause;
    fail(failed);
  }
  // Some file systems cannot sync a folder, and say so with EINVAL.
  if (fsync(folder_descriptor.value) != 0 && errno != EINVAL) fail("sync its folder");
}

std::vector<std::string> names_in(const std::string& label, const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  // A range-for would advance by the operator that throws.
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) throw Error(fmt::format("{}: cannot list it: {}", label, error.message()));
  return names;
}

void remove_leftovers(const std::string& label, const std::string& folder) {
  for (const std::string& name : names_in(label, folder)) {
    if (!name.starts_with(kTemporaryPrefix) || !name.ends_with(kTemporarySuffix)) continue;
    const std::string path = fmt::format("{}/{}", folder, name);
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    if (file.value >= 0 && flock(file.value, LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

}  // namespace aicf::io
