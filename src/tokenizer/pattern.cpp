#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "tokenizer/pattern_translation.h"

namespace evenkeel::tokenizer {
namespace {

// Limits for patterns with excessive backtracking.
constexpr size_t kMostPattern = size_t{64} << 10;  // bytes
constexpr uint32_t kMostHeap = 256 << 10;          // KiB
constexpr size_t kLeastSteps = 10'000'000;         // PCRE2 steps at one position, a tenth of a second
constexpr size_t kWindow = 64;                     // positions between two checks of the deadline
constexpr double kSeconds = 5, kSecondsPerByte = 1e-6;

/// The time limit of a search in one text, far above that of usual patterns. The coarse clock takes a few nanoseconds,
/// so it can be read after every match.
class Deadline {
 public:
  explicit Deadline(size_t bytes) : end_(now() + kSeconds + kSecondsPerByte * static_cast<double>(bytes)) {}
  bool passed() const { return now() > end_; }

 private:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double end_;
};

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

/// Memory of one thread for running PCRE2: one match, and a JIT stack that grows for long words.
class MatchRoom {
 public:
  MatchRoom()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(size_t{32} << 10, size_t{64} << 20, nullptr)) {
    pcre2_jit_stack_assign(context_, nullptr, stack_);
    pcre2_set_heap_limit(context_, kMostHeap);
  }
  ~MatchRoom() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }
  MatchRoom(const MatchRoom&) = delete;
  MatchRoom& operator=(const MatchRoom&) = delete;

  static MatchRoom& of_this_thread() {
    thread_local MatchRoom room;
    return room;
  }

  /// Sets the limit of steps at one position for a text of `bytes` bytes.
  void set_text_size(size_t bytes) {
    pcre2_set_match_limit(context_, static_cast<uint32_t>(std::clamp<size_t>(16 * bytes, kLeastSteps, UINT32_MAX)));
  }

  /// Returns PCRE2's code for a match that begins in [from, until]. If the JIT stack is too small, the interpreter
  /// runs.
  int match(const pcre2_code* code, std::string_view text, size_t from, size_t until) {
    pcre2_set_offset_limit(context_, until);
    const auto run = [&](uint32_t options) {
      return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK | options, data_, context_);
    };
    const int result = run(0);
    return result == PCRE2_ERROR_JIT_STACKLIMIT ? run(PCRE2_NO_JIT) : result;
  }
  const size_t* bounds() const { return pcre2_get_ovector_pointer(data_); }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

/// Searches the matches of one pattern in one text within a time limit.
class Search {
 public:
  Search(const pcre2_code* code, std::string_view text, std::string_view pattern)
      : code_(code), text_(text), pattern_(pattern), deadline_(text.size()) {
    room_.set_text_size(text.size());
  }

  /// Finds the first match that begins at or after `from`. Searches in windows, to check the deadline between them.
  bool next(size_t from) {
    int result = PCRE2_ERROR_NOMATCH;
    for (; from <= text_.size() && result == PCRE2_ERROR_NOMATCH; from += kWindow) {
      while (from < text_.size() && (static_cast<unsigned char>(text_[from]) & 0xC0) == 0x80) ++from;
      result = room_.match(code_, text_, from, from + kWindow + 3);
      require(result >= 0 || result == PCRE2_ERROR_NOMATCH, message_of(result));
      require(!deadline_.passed(), "takes too long");
    }
    return result >= 0;
  }
  std::pair<size_t, size_t> bounds() const { return {room_.bounds()[0], room_.bounds()[1]}; }

 private:
  void require(bool good, std::string_view problem) const {
    EK_CHECK(good, kData, "pattern ", shown(pattern_), " on a text of ", text_.size(), " bytes: ", problem);
  }

  const pcre2_code* code_;
  std::string_view text_, pattern_;
  Deadline deadline_;
  MatchRoom& room_ = MatchRoom::of_this_thread();
};

void check_size(std::string_view pattern) {
  EK_CHECK(pattern.size() <= kMostPattern, kData, "pattern ", shown(pattern), ": ", pattern.size(),
           " bytes, allowed: up to ", kMostPattern);
}

}  // namespace

struct SplitPattern::Code {
  ~Code() { pcre2_code_free(compiled); }
  pcre2_code* compiled = nullptr;
  std::string shown;
};

SplitPattern::SplitPattern(std::string pattern, std::string shown) : code_(std::make_unique<Code>()) {
  int error = 0;
  size_t offset = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT, &error, &offset, context.get());
  EK_CHECK(code_->compiled, kData, "pattern ", evenkeel::shown(shown), ": ", message_of(error));
  pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE);
  code_->shown = std::move(shown);
}

SplitPattern SplitPattern::regex(std::string_view pattern) {
  check_size(pattern);
  return SplitPattern(translate_pattern(pattern), std::string(pattern));
}

SplitPattern SplitPattern::literal(std::string_view text) {
  check_size(text);
  return SplitPattern(quoted_pattern(text), std::string(text));
}

SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

std::vector<TextSpan> SplitPattern::find(std::string_view text) const {
  Search search(code_->compiled, text, code_->shown);
  std::vector<TextSpan> spans;
  size_t done = 0, from = 0;
  bool any = false;
  while (search.next(from)) {
    const auto [begin, end] = search.bounds();
    if (begin == end && any && end == done) {  // skip an empty match directly after a match
      from += from < text.size() ? unicode::decode(text.data() + from).length : 1;
      continue;
    }
    if (done != begin) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    done = from = end;
    any = true;
  }
  if (done != text.size()) spans.push_back({done, text.size(), false});
  return spans;
}

}  // namespace evenkeel::tokenizer
