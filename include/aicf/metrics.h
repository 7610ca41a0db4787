// A log of metrics: one JSON object a line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aicf {

using MetricValue = std::variant<double, int64_t, std::string>;

class MetricsWriter {
 public:
  // Appends to the file, which is created when missing; a last line cut off by a crash is ended first. Throws Error
  // when the file cannot be opened.
  explicit MetricsWriter(const std::string& path);
  // The same, after cutting the file to its first `keep` bytes (a resumed run's records up to its checkpoint); a
  // shorter one stays as it is.
  MetricsWriter(const std::string& path, uint64_t keep);
  ~MetricsWriter();
  MetricsWriter(MetricsWriter&&) noexcept;
  MetricsWriter& operator=(MetricsWriter&&) noexcept;

  // The line is with the operating system when this returns. A double that is not finite is written as null. Throws
  // Error on a repeated key, a string that is not UTF-8, or when writing fails.
  void write(const std::vector<std::pair<std::string, MetricValue>>& record);

  // Bytes of the file. Throws Error when the system does not say.
  uint64_t size() const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace aicf
