#include "backend/cuda/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/hash.h"

namespace aicf::backend::cuda {
namespace {

// Of the layout of an entry.
constexpr const char* kVersion = "v1";

std::filesystem::path entry_path(const std::string& kind, const std::string& key) {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / kind / kVersion / (hex(base::hash_text(key)) + ".bin");
}

}  // namespace

std::filesystem::path cache_folder() {
  if (const char* own = std::getenv("AICF_CACHE_DIR"); own != nullptr) return own;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg != '\0') {
    return std::filesystem::path(xdg) / "aicf";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "aicf";
  }
  return {};
}

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

// An entry: the whole key, so that a collision of hashes is seen, and a hash of the content, so that a torn file is.
std::string read_cache(const std::string& kind, const std::string& key) {
  const std::filesystem::path path = entry_path(kind, key);
  if (path.empty()) return {};
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string head = key + '\0';
  if (!file || all.size() < head.size() + 16 || !all.starts_with(head)) return {};
  std::string content = all.substr(head.size() + 16);
  return all.compare(head.size(), 16, hex(base::hash_text(content))) == 0 ? content : std::string();
}

void write_cache(const std::string& kind, const std::string& key, const std::string& content) {
  const std::filesystem::path path = entry_path(kind, key);
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::string temporary = path.string() + ".XXXXXX";
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return;
  close(fd);
  std::ofstream file(temporary, std::ios::binary);
  file << key << '\0' << hex(base::hash_text(content)) << content;
  file.close();
  if (file) std::filesystem::rename(temporary, path, ignored);
  if (!file || ignored) std::filesystem::remove(temporary, ignored);
}

}  // namespace aicf::backend::cuda
