// Text as tokens: the bytes of a file, or of what `bible` prints, in windows.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

#include "aicf/data.h"
#include "aicf/error.h"
#include "io/bytes.h"

namespace aicf {
namespace {

// The command stands here, not in a recipe: reading a recipe never runs what it says.
constexpr const char* kBibleCommand = "bible -f ge1:1-re22:21 2>/dev/null </dev/null";
constexpr int64_t kBibleBytes = 4404412;

std::string read_file(const std::string& path) {
  const io::FileBytes bytes("text", path);
  std::string text(bytes.size(), '\0');
  bytes.read(0, std::as_writable_bytes(std::span<char>(text)));
  return text;
}

std::string bible() {
  const char* instead = std::getenv("AICF_BIBLE_KJV");
  if (instead != nullptr && *instead != '\0') return read_file(instead);
  std::string text;
  if (FILE* pipe = popen(kBibleCommand, "r"); pipe != nullptr) {
    char block[1 << 16];
    for (size_t n = 0; (n = fread(block, 1, sizeof(block), pipe)) > 0;) text.append(block, n);
    if (pclose(pipe) != 0) text.clear();
  }
  if (static_cast<int64_t>(text.size()) == kBibleBytes) return text;
  throw Error(fmt::format("bible-kjv: expected {} bytes of `bible -f ge1:1-re22:21`, got {}", kBibleBytes, text.size()),
              "install Debian's package bible-kjv (scripts/setup does), or set AICF_BIBLE_KJV to a file of its text");
}

}  // namespace

Dataset load_text_set(const TextSetOptions& options) {
  if (options.context < 1) throw Error(fmt::format("load_text_set: expected a context >= 1, got {}", options.context));
  if (!(options.held_out >= 0 && options.held_out <= 1)) {
    throw Error(fmt::format("load_text_set: expected held_out from 0 to 1, got {}", options.held_out));
  }
  const std::string text = options.path.empty() ? bible() : read_file(options.path);
  const auto size = static_cast<int64_t>(text.size());
  const auto cut = static_cast<int64_t>(std::floor(static_cast<double>(size) * (1 - options.held_out)));
  const int64_t first = options.train ? 0 : cut, end = options.train ? cut : size;
  const int64_t windows = (end - first - 1) / options.context;
  if (windows < 1) {
    throw Error(fmt::format("load_text_set({}): expected more than {} bytes to {}, got {}", io::quote(options.path),
                            options.context, options.train ? "train on" : "test on", end - first));
  }
  NamedTensors tensors = {{options.tokens, Tensor(TensorType{i32, {windows, options.context}})},
                          {options.next, Tensor(TensorType{i32, {windows, options.context}})}};
  for (int64_t shift = 0; shift < 2; ++shift) {
    int32_t* to = tensors[static_cast<size_t>(shift)].second.as<int32_t>();
    for (int64_t i = 0; i < windows * options.context; ++i) {
      to[i] = static_cast<unsigned char>(text[static_cast<size_t>(first + shift + i)]);
    }
  }
  return Dataset(std::move(tensors));
}

}  // namespace aicf
