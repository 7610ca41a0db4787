// Fuzzes the reader of a checkpoint's metadata, given as lines KEY=VALUE: it throws Error, or what it read comes back
// the same when it is written and read again. (The file around it is fuzz_safetensors' part.)
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "aicf/error.h"
#include "io/checkpoint_format.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

aicf::Safetensors file_of(std::map<std::string, std::string> metadata) {
  return {{{"w", aicf::Tensor::of<float>({2}, {1, 2})}}, std::move(metadata)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(bytes), size);
  std::map<std::string, std::string> metadata;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    metadata.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  aicf::Checkpoint read;
  try {
    const std::string waive[] = {aicf::io::kWaiveChecksum};
    read = aicf::io::checkpoint_of(file_of(metadata), "fuzz", waive);
  } catch (const aicf::Error& error) {
    require(std::strchr(error.what(), '\n') == nullptr);
    return 0;
  }
  require(read.step.value_or(0) >= 0);
  if (read.data) require(read.data->next.epoch >= 0 && read.data->next.position >= 0 && read.data->examples >= 0);
  const aicf::Checkpoint again =
      aicf::io::checkpoint_of(file_of(aicf::io::checkpoint_metadata(read, "fuzz")), "fuzz", {});
  require(again == read);
  return 0;
}
