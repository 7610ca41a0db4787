// A cache of small files: what compiling and timing found out, kept for later processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace aicf::backend::cuda {

// $AICF_CACHE_DIR, else $XDG_CACHE_HOME/aicf, else ~/.cache/aicf; empty when there is none of them.
std::filesystem::path cache_folder();

// The 16 hexadecimal digits of a hash, as in the names of entries.
std::string hex(uint64_t value);

// The content kept under this key in `kind` ("cubin"), or "": none, or a file that is torn or another key's.
std::string read_cache(const std::string& kind, const std::string& key);
// Replaces it, atomically. A folder that cannot be written is done without.
void write_cache(const std::string& kind, const std::string& key, const std::string& content);

}  // namespace aicf::backend::cuda
