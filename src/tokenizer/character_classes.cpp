#include "tokenizer/character_classes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/unicode/unicode.h"
#include "base/unicode/unicode_properties.h"
#include "base/unicode/unicode_tables.h"

namespace evenkeel::tokenizer {
namespace {

struct CategoryName {
  std::string_view letters, words;
};

// The names are in the order of utf8proc_category_t.
constexpr std::string_view kCategoryNames = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";

// A name of one letter contains all categories that begin with it. Larger categories come first, because the first that
// fits is used.
constexpr CategoryName kCategories[] = {{"L", "Letter"},
                                        {"M", "Mark"},
                                        {"N", "Number"},
                                        {"P", "Punctuation"},
                                        {"S", "Symbol"},
                                        {"Z", "Separator"},
                                        {"Lu", "Uppercase_Letter"},
                                        {"Ll", "Lowercase_Letter"},
                                        {"Lt", "Titlecase_Letter"},
                                        {"Lm", "Modifier_Letter"},
                                        {"Lo", "Other_Letter"},
                                        {"Mn", "Nonspacing_Mark"},
                                        {"Mc", "Spacing_Mark"},
                                        {"Me", "Enclosing_Mark"},
                                        {"Nd", "Decimal_Number"},
                                        {"Nl", "Letter_Number"},
                                        {"No", "Other_Number"},
                                        {"Pc", "Connector_Punctuation"},
                                        {"Pd", "Dash_Punctuation"},
                                        {"Ps", "Open_Punctuation"},
                                        {"Pe", "Close_Punctuation"},
                                        {"Pi", "Initial_Punctuation"},
                                        {"Pf", "Final_Punctuation"},
                                        {"Po", "Other_Punctuation"},
                                        {"Sm", "Math_Symbol"},
                                        {"Sc", "Currency_Symbol"},
                                        {"Sk", "Modifier_Symbol"},
                                        {"So", "Other_Symbol"},
                                        {"Zs", "Space_Separator"},
                                        {"Zl", "Line_Separator"},
                                        {"Zp", "Paragraph_Separator"},
                                        {"C", "Other"},
                                        {"Cc", "Control"},
                                        {"Cf", "Format"},
                                        {"Cn", "Unassigned"},
                                        {"Co", "Private_Use"},
                                        {"Cs", "Surrogate"}};

// The only character whose category changed since Unicode 14. PCRE2 has it in Mn.
constexpr uint32_t kChangedToMc = 0x1171E;

/// Sets by category: `now` as in Unicode 16, `known` the part of it in PCRE2, which has Unicode 14.
struct Categories {
  std::map<std::string, CodeSet, std::less<>> now, known;
};

CodeSet recent() {
  std::vector<CodeRange> ranges;
  for (const auto& range : unicode::kCategoriesSince15) ranges.push_back({range.first, range.last});
  return CodeSet(std::move(ranges));
}

using RangeLists = std::array<std::vector<CodeRange>, kCategoryNames.size() / 2>;

/// Returns the ranges of each category of utf8proc.
RangeLists lists_by_category() {
  RangeLists lists;
  int before = -1;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    const int now = unicode::category(c);
    auto& list = lists[static_cast<size_t>(now)];
    if (now == before)
      list.back().last = c;
    else
      list.push_back({c, c});
    before = now;
  }
  return lists;
}

Categories build_categories() {
  const auto lists = lists_by_category();
  const auto since = recent();
  const auto changed = CodeSet::of(kChangedToMc, kChangedToMc);
  Categories out;
  for (const auto& [letters, words] : kCategories) {
    std::vector<CodeRange> all;
    for (size_t i = 0; i < lists.size(); ++i)
      if (kCategoryNames.substr(2 * i, 2).starts_with(letters)) all.insert(all.end(), lists[i].begin(), lists[i].end());
    const CodeSet set(std::move(all));
    out.known.emplace(letters, letters == "Mn" ? (set - since) | changed : set - since);
    out.now.emplace(letters, set);
  }
  return out;
}

const Categories& categories() {
  static const Categories built = build_categories();
  return built;
}

const CodeSet& category_set(std::string_view letters) { return categories().now.find(letters)->second; }

std::string squeezed(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string every_code_point() {
  std::string text;
  text.reserve(size_t{9} << 19);
  const auto everything = CodeSet::all();
  for (const auto& range : everything.ranges())
    for (uint32_t c = range.first; c <= range.last; ++c) unicode::append(text, c);
  return text;
}

/// Returns PCRE2's set of `\p{name}`, found by matching it on the text of all code points. Empty if PCRE2 does not know
/// the name.
CodeSet ask_pcre2(const std::string& name) {
  const std::string pattern = "\\p{" + name + "}+", text = every_code_point();
  int error = 0;
  size_t offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &offset, nullptr),
      &pcre2_code_free);
  if (!code) return {};
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                  &pcre2_match_data_free);
  std::vector<CodeRange> ranges;
  const auto* bounds = pcre2_get_ovector_pointer(match.get());
  for (size_t at = 0; pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0;
       at = bounds[1])
    ranges.push_back({unicode::decode(text.data() + bounds[0]).value,
                      unicode::decode_before(text.data(), text.data() + bounds[1]).value});
  return CodeSet(std::move(ranges));
}

CodeSet read_property(std::string_view name, std::string_view prefix) {
  std::vector<CodeRange> added;
  for (const auto& one : unicode::kAddedSince14)
    if (one.property == name) added.push_back({one.first, one.last});
  return ask_pcre2(std::string(prefix).append(name)) | CodeSet(std::move(added));
}

/// Returns a script or binary property, which is computed at the first call and cached.
CodeSet property(std::string_view name, std::string_view prefix) {
  static std::mutex mutex;
  static std::map<std::string, CodeSet, std::less<>> read;
  const std::lock_guard lock(mutex);
  auto found = read.find(name);
  if (found == read.end()) found = read.emplace(name, read_property(name, prefix)).first;
  return found->second;
}

CodeSet binary(std::string_view name) { return property(name, ""); }

CodeSet white_space() { return CodeSet({{9, 13}, {0x20, 0x20}, {0x85, 0x85}}) | category_set("Z"); }

CodeSet alphabetic_symbols() {
  return CodeSet({{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}});
}

CodeSet word() {
  return category_set("L") | category_set("M") | category_set("Nd") | category_set("Nl") | category_set("Pc") |
         alphabetic_symbols();
}

CodeSet hex_digits() { return CodeSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}); }

CodeSet graph() { return (white_space() | category_set("Cc") | category_set("Cn") | category_set("Cs")).complement(); }

/// Returns a POSIX class other than punct, which differs between [:punct:] and \p{Punct}.
std::optional<CodeSet> common_class(std::string_view name) {
  if (name == "alnum") return binary("Alphabetic") | category_set("Nd");
  if (name == "alpha") return binary("Alphabetic");
  if (name == "ascii") return CodeSet::of(0, 0x7F);
  if (name == "blank") return category_set("Zs") | CodeSet::of('\t', '\t');
  if (name == "cntrl") return category_set("Cc");
  if (name == "digit") return category_set("Nd");
  if (name == "graph") return graph();
  if (name == "lower") return binary("Lowercase");
  if (name == "print") return graph() | category_set("Zs");
  if (name == "space") return white_space();
  if (name == "upper") return binary("Uppercase");
  if (name == "word") return word();
  if (name == "xdigit") return hex_digits();
  return std::nullopt;
}

std::optional<CodeSet> category_class(std::string_view name) {
  for (const auto& [letters, words] : kCategories)
    if (name == squeezed(letters) || name == squeezed(words)) return category_set(letters);
  if (name == "lc" || name == "casedletter") return category_set("Lu") | category_set("Ll") | category_set("Lt");
  if (name == "punct") return category_set("P");
  if (name == "any") return CodeSet::all();
  if (name == "unknown" || name == "zzzz") return category_set("Cn") | category_set("Co");  // Script=Unknown
  if (name == "assigned") return category_set("Cn").complement();
  return std::nullopt;
}

template <typename Names>
std::optional<CodeSet> listed(const Names& names, std::string_view prefix, std::string_view name) {
  for (const auto& one : names)
    if (squeezed(one) == name) return property(one, prefix);
  return std::nullopt;
}

/// Returns the long form of a short name; other names unchanged.
std::string long_name(const std::string& name) {
  for (const auto& one : unicode::kPropertyAliases)
    if (squeezed(one.alias) == name) return squeezed(one.name);
  return name;
}

void append_code(std::string& out, uint32_t code_point) {
  char digits[8];
  out.append("\\x{").append(digits, std::to_chars(digits, digits + sizeof digits, code_point, 16).ptr).append("}");
}

/// A pattern for a set: categories that are part of the set and replace many ranges, and the remaining ranges.
struct Members {
  std::string properties;
  CodeSet rest;

  explicit Members(const CodeSet& set) : rest(set) {
    constexpr size_t kFew = 12;
    for (const auto& [letters, words] : kCategories) {
      if (rest.ranges().size() <= kFew || letters[0] == 'C') break;
      const auto& known = categories().known.find(letters)->second;
      const auto taken = known & rest;
      if (taken.ranges().size() < 3 || !set.includes(known)) continue;
      properties.append("\\p{").append(letters).append("}");
      rest = rest - known;
    }
  }

  std::string text() const {
    auto out = properties;
    for (const auto& range : rest.ranges()) {
      append_code(out, range.first);
      if (range.last != range.first) append_code(out += '-', range.last);
    }
    return out;
  }
};

}  // namespace

std::optional<CodeSet> property_class(std::string_view name) {
  const auto wanted = long_name(squeezed(name));
  if (auto set = category_class(wanted)) return set;
  if (auto set = common_class(wanted)) return set;
  if (auto set = listed(unicode::kScripts, "sc:", wanted)) return set;
  return listed(unicode::kBinaryProperties, "", wanted);
}

std::optional<CodeSet> posix_class(std::string_view name) {
  return name == "punct" ? category_set("P") | category_set("S") : common_class(name);
}

CodeSet letter_class(char letter) {
  switch (letter) {
    case 'd':
      return category_set("Nd");
    case 'h':
      return hex_digits();
    case 's':
      return white_space();
    default:
      return word();
  }
}

CodeSet word_outside_brackets() { return word() | CodeSet({{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}}); }

std::string bracket_expression(const CodeSet& set) {
  if (set.empty()) return "(?!)";
  const auto others = set.complement();
  if (others.empty()) return "(?s:.)";
  const Members inside(set), outside(others);
  const bool negated = outside.rest.ranges().size() < inside.rest.ranges().size();
  return (negated ? "[^" + outside.text() : "[" + inside.text()) + "]";
}

}  // namespace evenkeel::tokenizer
