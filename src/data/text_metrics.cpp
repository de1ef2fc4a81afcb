#include "data/text_metrics.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <vector>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"

namespace evenkeel::data {
namespace {

bool is_punctuation(uint32_t c) { return c < 0x80 && std::ispunct(static_cast<int>(c)); }
/// Python's \w without the underscore, which counts as punctuation.
bool is_word(uint32_t c) { return unicode::flags()[c] & (unicode::kLetter | unicode::kNumber); }
/// Python's split() also splits at the four ASCII separators.
bool is_space(uint32_t c) { return (unicode::flags()[c] & unicode::kSpace) || (c >= 0x1C && c <= 0x1F); }
/// Compares code points [first, last) with the three articles.
bool is_article(std::vector<uint32_t>::const_iterator first, std::vector<uint32_t>::const_iterator last) {
  constexpr std::array<std::string_view, 3> kArticles = {"a", "an", "the"};
  return std::any_of(kArticles.begin(), kArticles.end(), [&](std::string_view article) {
    return std::equal(first, last, article.begin(), article.end(),
                      [](uint32_t c, char want) { return c == static_cast<uint32_t>(want); });
  });
}

using CodePoints = std::vector<uint32_t>;

CodePoints code_points(std::string_view text) {
  const auto valid = unicode::replace_invalid(text);
  CodePoints points;
  for (size_t at = 0; at < valid.size();) {
    const auto point = unicode::decode(valid.data() + at);
    at += point.length;
    points.push_back(point.value);
  }
  return points;
}

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Implements Unicode's property Cased: letters with case, and the ranges of Other_Lowercase and Other_Uppercase.
bool is_cased(uint32_t c) {
  const auto kind = category(c);
  const bool other = c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) || c == 0x2C0 || c == 0x2C1 ||
                     (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A || (c >= 0x1D2C && c <= 0x1D6A) ||
                     c == 0x1D78 || (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 || c == 0x207F ||
                     (c >= 0x2090 && c <= 0x209C) || (c >= 0x2160 && c <= 0x217F) || (c >= 0x24B6 && c <= 0x24E9) ||
                     (c >= 0xA69C && c <= 0xA69D) || c == 0xA770 || (c >= 0x1F130 && c <= 0x1F149) ||
                     (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return other || kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

/// Unicode's property Case_Ignorable: marks, modifiers, format characters and punctuation inside words.
bool is_case_ignorable(uint32_t c) {
  constexpr std::array<uint32_t, 14> kWithin = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,  0x5F4,
                                                0x2018, 0x2019, 0x2024, 0x2027, 0xFE13, 0xFE52, 0xFF07};
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == 0xFE55 || c == 0xFF0E || c == 0xFF1A ||
         std::find(kWithin.begin(), kWithin.end(), c) != kWithin.end();
}

/// Returns whether the first code point that is not case-ignorable is cased.
template <typename Iterator>
bool meets_cased(Iterator first, Iterator last) {
  const auto found = std::find_if_not(first, last, is_case_ignorable);
  return found != last && is_cased(*found);
}

/// Implements Python's lower(): a capital sigma at the end of a word becomes a final sigma, and a dotted capital I
/// becomes two code points.
CodePoints lowered(const CodePoints& points) {
  constexpr uint32_t kSigma = 0x3A3, kFinalSigma = 0x3C2, kDottedI = 0x130, kDot = 0x307;
  CodePoints result;
  for (auto at = points.begin(); at != points.end(); ++at) {
    const auto before = std::make_reverse_iterator(at);
    if (*at == kSigma && meets_cased(before, points.rend()) && !meets_cased(at + 1, points.end()))
      result.push_back(kFinalSigma);
    else if (*at == kDottedI)
      result.insert(result.end(), {'i', kDot});
    else
      result.push_back(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(*at))));
  }
  return result;
}

CodePoints lowered_without_punctuation(std::string_view text) {
  auto points = lowered(code_points(text));
  std::erase_if(points, is_punctuation);
  return points;
}

/// Replaces every article by a space. An article is a whole run of word characters, as in the source's \b(a|an|the)\b.
CodePoints without_articles(const CodePoints& points) {
  CodePoints result;
  for (auto at = points.begin(); at != points.end();) {
    const auto end = is_word(*at) ? std::find_if_not(at, points.end(), is_word) : at + 1;
    if (is_article(at, end))
      result.push_back(' ');
    else
      result.insert(result.end(), at, end);
    at = end;
  }
  return result;
}

std::vector<std::string> words_of(std::string_view text) {
  const auto points = without_articles(lowered_without_punctuation(text));
  std::vector<std::string> words;
  for (auto at = points.begin(); (at = std::find_if_not(at, points.end(), is_space)) != points.end();) {
    words.emplace_back();
    for (; at != points.end() && !is_space(*at); ++at) unicode::append(words.back(), *at);
  }
  return words;
}

double f1_of(const std::vector<std::string>& output, const std::vector<std::string>& reference) {
  if (output.empty() || reference.empty()) return 0;
  std::map<std::string_view, int64_t> left;
  for (const auto& word : reference) ++left[word];
  double common = 0;
  for (const auto& word : output)
    if (--left[word] >= 0) ++common;
  // equals 2PR / (P + R) with P = common / |output|, R = common / |reference|
  return 2 * common / static_cast<double>(output.size() + reference.size());
}

/// Returns the text in lower case without surrounding white space.
std::string bare_text(std::string_view text) {
  const auto points = lowered(code_points(text));
  const auto first = std::find_if_not(points.begin(), points.end(), is_space);
  const auto end = std::find_if_not(points.rbegin(), std::make_reverse_iterator(first), is_space).base();
  std::string bare;
  for (auto at = first; at != end; ++at) unicode::append(bare, *at);
  return bare;
}

/// Compares without normalisation. It is used if all references consist of articles and punctuation ("A", "*"), which
/// normalisation removes.
TextMatch match_without_normalisation(std::string_view output, std::span<const std::string> references) {
  const auto written = bare_text(output);
  const bool matches = std::any_of(references.begin(), references.end(),
                                   [&](const auto& one) { return !written.empty() && written == bare_text(one); });
  return {matches ? 1.0 : 0.0, matches ? 1.0 : 0.0};
}

}  // namespace

std::string strip(std::string_view text) {
  constexpr std::string_view kAround = " \t\r\n";
  const auto first = text.find_first_not_of(kAround);
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kAround) - first + 1));
}

std::string normalize_answer(std::string_view text) { return join(words_of(text), " "); }

bool exact_match(std::string_view output, std::string_view reference) {
  const auto words = words_of(output);
  return !words.empty() && words == words_of(reference);
}

double token_f1(std::string_view output, std::string_view reference) {
  return f1_of(words_of(output), words_of(reference));
}

TextMatch best_match(std::string_view output, std::span<const std::string> references) {
  EK_CHECK(!references.empty(), kInternal, "best_match: no reference to compare with");
  std::vector<std::vector<std::string>> accepted;
  for (const auto& reference : references)
    if (auto words = words_of(reference); !words.empty()) accepted.push_back(std::move(words));
  if (accepted.empty()) return match_without_normalisation(output, references);
  const auto written = words_of(output);
  TextMatch best;
  for (const auto& reference : accepted) {
    best.exact_match = std::max(best.exact_match, written == reference ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, f1_of(written, reference));
  }
  return best;
}

}  // namespace evenkeel::data
