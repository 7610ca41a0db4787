// One write(2) a line to a file opened for appending: a crash cuts at most the last line.
#include "aicf/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <set>
#include <span>
#include <string_view>

#include "aicf/error.h"
#include "io/bytes.h"

namespace aicf {
namespace {

void append(int descriptor, const std::string& path, const std::string& line) {
  if (!io::write_all(descriptor, std::as_bytes(std::span(line)))) {
    throw Error(fmt::format("MetricsWriter({}): cannot write: {}", io::quote(path), io::last_error()));
  }
}

std::string to_json(const MetricValue& value, const std::string& what) {
  if (const auto* number = std::get_if<double>(&value))
    return std::isfinite(*number) ? fmt::format("{}", *number) : "null";
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  return io::json_string(std::get<std::string>(value), what);
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path) : MetricsWriter(path, UINT64_MAX) {}

MetricsWriter::MetricsWriter(const std::string& path, uint64_t keep) : path_(path) {
  descriptor_ = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw Error(fmt::format("MetricsWriter({}): cannot open: {}", io::quote(path), io::last_error()));
  try {
    char last = '\n';
    off_t size = lseek(descriptor_, 0, SEEK_END);
    if (size > 0 && static_cast<uint64_t>(size) > keep) {
      size = static_cast<off_t>(keep);
      if (ftruncate(descriptor_, size) != 0) {
        throw Error(fmt::format("MetricsWriter({}): cannot cut: {}", io::quote(path), io::last_error()));
      }
    }
    if (size > 0 && pread(descriptor_, &last, 1, size - 1) == 1 && last != '\n') append(descriptor_, path, "\n");
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

MetricsWriter::~MetricsWriter() {
  if (descriptor_ >= 0) close(descriptor_);
}

MetricsWriter::MetricsWriter(MetricsWriter&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

MetricsWriter& MetricsWriter::operator=(MetricsWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

uint64_t MetricsWriter::size() const {
  const off_t size = lseek(descriptor_, 0, SEEK_END);
  if (size < 0) throw Error(fmt::format("MetricsWriter({}): {}", io::quote(path_), io::last_error()));
  return static_cast<uint64_t>(size);
}

void MetricsWriter::write(const std::vector<std::pair<std::string, MetricValue>>& record) {
  const std::string label = fmt::format("MetricsWriter({})", io::quote(path_));
  std::set<std::string_view> keys;
  std::string line = "{";
  for (const auto& [key, value] : record) {
    if (!keys.insert(key).second)
      throw Error(fmt::format("{}: expected unique keys, got {} twice", label, io::quote(key)));
    if (line.size() > 1) line += ',';
    line += io::json_string(key, label + ": key") + ":" + to_json(value, label + ": " + io::quote(key));
  }
  append(descriptor_, path_, line + "}\n");
}

}  // namespace aicf
