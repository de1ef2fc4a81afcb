#define PCRE2_CODE_UNIT_WIDTH 8
#include "lora/peft_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::lora::peft {
namespace {

constexpr uint32_t kMaxSteps = 100'000;  // steps of one match; names are short
constexpr size_t kLongestPattern = 4096;

/// Letters that mean the same after a backslash in Python and in PCRE2.
constexpr std::string_view kCommonEscapes = "dDwWsSbBAZnrtfx0123456789";
/// Group prefixes after "(?" that Python and PCRE2 have in common.
constexpr std::array<std::string_view, 8> kCommonGroups{":", "=", "!", ">", "<=", "<!", "P<", "P="};

bool reads_alike(std::string_view rest) {
  if (rest.starts_with("\\"))
    return rest.size() > 1 &&
           (!std::isalnum(static_cast<unsigned char>(rest[1])) || kCommonEscapes.find(rest[1]) != kCommonEscapes.npos);
  if (rest.starts_with("(?"))
    return std::any_of(kCommonGroups.begin(), kCommonGroups.end(),
                       [&](std::string_view group) { return rest.substr(2).starts_with(group); });
  return !rest.starts_with("(*") && !rest.starts_with("[[:") && !rest.starts_with("{,");
}

void require_common_syntax(std::string_view text, const std::string& origin) {
  for (size_t i = 0; i < text.size(); i += text[i] == '\\' ? 2 : 1)
    EK_CHECK(reads_alike(text.substr(i)), kCheckpoint, origin, ": ", shown(text), " has ", shown(text.substr(i, 3)),
             " at character ", i + 1, ", which is read here in another way than by Python, or not at all");
}

std::shared_ptr<void> compiled(const std::string& text, std::string_view before, std::string_view after,
                               const std::string& origin) {
  EK_CHECK(text.size() <= kLongestPattern, kCheckpoint, origin, ": ", shown(text), " is longer than ", kLongestPattern);
  require_common_syntax(text, origin);
  const auto whole = concat(before, text, after);
  int error = 0;
  size_t at = 0;
  std::shared_ptr<void> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(),
                                           PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr),
                             [](void* one) { pcre2_code_free(static_cast<pcre2_code*>(one)); });
  EK_CHECK(code, kCheckpoint, origin, ": ", shown(text), " is no regular expression");
  return code;
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

/// \return the result of pcre2_match()
int run_match(const pcre2_code* code, std::string_view subject, pcre2_match_data* data) {
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMaxSteps);
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), 0, 0, data, context.get());
}

}  // namespace

Regex::Regex(const std::string& text, std::string_view before, std::string_view after, const std::string& origin)
    : text_(text), origin_(origin), code_(compiled(text, before, after, origin)) {}

std::optional<std::string> Regex::match(std::string_view subject, const char* group) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
  const int result = run_match(code, subject, data.get());
  EK_CHECK(result >= 0 || result == PCRE2_ERROR_NOMATCH, kCheckpoint, origin_, ": ", shown(text_),
           " takes too many steps to match");
  if (result < 0) return std::nullopt;
  const int number = group ? pcre2_substring_number_from_name(code, reinterpret_cast<PCRE2_SPTR>(group)) : 0;
  const auto* ends = pcre2_get_ovector_pointer(data.get()) + 2 * number;
  return std::string(subject.substr(ends[0], ends[1] - ends[0]));
}

}  // namespace evenkeel::lora::peft
