#include "base/plain/file_system.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

namespace fs = std::filesystem;

/// Replaces "\040" and other octal escapes, which stand for blanks and backslashes.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto code = text[i] == '\\' ? parse_number<unsigned>(text.substr(i + 1, 3), 8) : std::nullopt;
    plain += code ? static_cast<char>(*code) : text[i];
    if (code) i += 3;
  }
  return plain;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

struct Mount {
  fs::path point;
  std::string type;
};

/// Parses a line: number, parent, device, root, mount point, options, "-", type, source, options.
Mount mount_of(const std::string& line) {
  std::istringstream in(line);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (words.size() < 6 || dash == words.end() || dash + 1 == words.end()) return {};
  return {unescaped(words[4]), *(dash + 1)};
}

}  // namespace

std::string file_system_of(const fs::path& path, const fs::path& mounts) {
  std::error_code error;
  const auto whole = fs::weakly_canonical(path, error);
  std::ifstream in(mounts);
  Mount found;
  for (std::string line; !error && std::getline(in, line);) {
    auto mount = mount_of(line);
    const bool longer = mount.point.native().size() >= found.point.native().size();
    if (!mount.point.empty() && longer && is_inside(whole, mount.point)) found = std::move(mount);
  }
  return found.type.empty() ? "unknown" : concat(found.type, " at ", found.point.string());
}

}  // namespace evenkeel
