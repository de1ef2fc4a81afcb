#include "flower/federation/content_digests.h"

#include <algorithm>
#include <string_view>

#include "base/plain/error.h"

namespace evenkeel::flower {

std::vector<std::string> changed_parts(const ContentDigests& joined, const ContentDigests& now) {
  std::vector<std::string> parts;
  if (!joined.given()) return parts;
  if (joined.rows != now.rows) parts.emplace_back("rows");
  if (joined.tests != now.tests && joined.tested == now.tested) parts.emplace_back("test rows");
  if (joined.base != now.base) parts.emplace_back("base");
  if (joined.tokenizer != now.tokenizer) parts.emplace_back("tokenizer");
  return parts;
}

std::string change_text(const std::vector<std::string>& parts) {
  const auto holds = [&](std::string_view part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
  if (holds("rows") && holds("base") && holds("tokenizer"))
    return "comes back with other rows, base and tokenizer than it joined with, or without the memory folder "
           "(--memory) that tells them apart";
  return concat("comes back with another content than it joined with: ", join(parts));
}

}  // namespace evenkeel::flower
