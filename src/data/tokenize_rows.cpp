// Implements tokenize_rows() of data/prompt.h.
#include <algorithm>
#include <array>
#include <optional>

#include "base/plain/error.h"
#include "data/context_window.h"
#include "data/left_out_rows.h"
#include "data/prompt.h"
#include "data/text_metrics.h"

namespace evenkeel::data {
namespace {

/// Returns the length of the common prefix: the tokens of a prompt, unless its last token merged with the answer's
/// first.
int64_t common_prefix(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// A row as tokens.
struct EncodedRow {
  std::optional<Example> example{};  ///< nothing if the answer and its place in the context do not fit
  bool cut = false, windowed = false, last_only = false;
};

/// Returns the bytes of the context that hold the output, without the blanks around it. Returns the empty span at 0 if
/// the place of the output is not known.
KeptSpan span_of_output(const Row& row) {
  if (row.answer_at < 0) return {};
  // The output of a published file may begin with blanks, and its place then does too.
  const size_t begin =
      std::min(row.input.find_first_not_of(" \t\r\n", static_cast<size_t>(row.answer_at)), row.input.size());
  return {begin, begin + strip(row.output).size()};
}

class RowEncoder {
 public:
  RowEncoder(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer), options_(options), prompts_(tokenizer, options.form) {}

  EncodedRow encode(const Row& row) const {
    auto text = prompts_.transcript(row);
    auto ids = prompts_.encode_whole(text.text);
    EncodedRow encoded{.last_only = text.last_only};
    encoded.cut = static_cast<int64_t>(ids.size()) > (row.input.empty() ? options_.cutoff : cutoff_without_eos());
    if (!encoded.cut || row.input.empty()) {
      encoded.example = example(text, std::move(ids));
    } else if (const auto window = windowed(row)) {
      encoded.windowed = true;
      text = prompts_.transcript(*window);
      encoded.example = example(text, prompts_.encode_whole(text.text));
    }
    return encoded;
  }

 private:
  int64_t cutoff_without_eos() const { return options_.cutoff - (options_.eos < 0 ? 0 : 1); }

  /// Returns the row with as much of its context as fits, around its output where the context holds it, else from the
  /// beginning. The place of the output is then unknown. Returns nothing if the row does not fit.
  std::optional<Row> windowed(const Row& row) const {
    Row shorter = row;
    shorter.answer_at = -1;
    const auto tokens_with = [&](std::string_view context) {
      shorter.input = context;
      return static_cast<int64_t>(prompts_.encode_whole(prompts_.transcript(shorter).text).size());
    };
    const auto window_around = [&](KeptSpan required) {
      return context_window(row.input, required, cutoff_without_eos(), tokenizer_, tokens_with);
    };
    auto context = window_around(span_of_output(row));
    // A long output may fit once, but not a second time in the context. A user's own row is trained without it there.
    if (!context && row.answer_at >= 0 && !row.origin.empty()) context = window_around({});
    if (!context) return std::nullopt;
    shorter.input = std::move(*context);
    return shorter;
  }

  Example example(const Transcript& text, std::vector<int64_t> ids) const {
    Example example{.ids = std::move(ids)};
    const auto length = static_cast<int64_t>(example.ids.size());
    if (length > options_.cutoff)
      example.ids.resize(static_cast<size_t>(options_.cutoff));
    else if (length < options_.cutoff && options_.eos >= 0 && !text.ended &&
             (length == 0 || example.ids.back() != options_.eos))
      example.ids.push_back(options_.eos);
    example.ids.shrink_to_fit();
    if (options_.mask_prompt) set_targets(text, example);
    return example;
  }

  /// Makes the answers the targets. A token that crosses the border of an answer belongs to the answer.
  void set_targets(const Transcript& text, Example& example) const {
    const auto size = static_cast<int64_t>(example.ids.size());
    if (size == 0) return;  // no target, so the row is dropped
    const auto ends = token_ends(text.text, example.ids);
    int64_t end = 0;  // of the previous answer
    for (const auto& answer : text.answers) {
      const auto first =
          ends.empty() ? tokens_before(text, answer.begin, example) : tokens_that_end_by(ends, answer.begin);
      const int64_t begin = std::clamp(std::max(first, end), int64_t{1}, size);
      if (end == 0)
        example.first_target = begin;
      else if (begin > end)
        example.between.push_back({end, begin});
      end = std::clamp(answer.end == text.text.size() ? size : first_token_after(text, answer.end, ends, example),
                       begin, size);
    }
    if (end == 0) example.first_target = size;
    if (end > 0 && end < size) example.between.push_back({end, size});
  }

  /// Returns the end of each token as an offset in the text of a conversation. Returns nothing if the tokenizer does
  /// not preserve bytes, and for other templates: there the answer begins after the tokens of the prompt.
  std::vector<size_t> token_ends(std::string_view text, std::span<const int64_t> ids) const {
    if (options_.form != PromptTemplate::kChat || !tokenizer_.is_byte_level()) return {};
    std::vector<size_t> ends;
    std::string bytes;
    for (const int64_t id : ids) {
      bytes += tokenizer_.decode(std::array{id}, /*skip_special_tokens=*/false, /*raw=*/true);
      ends.push_back(bytes.size());
    }
    return text.starts_with(std::string_view(bytes).substr(0, text.size())) ? ends : std::vector<size_t>();
  }

  static int64_t tokens_that_end_by(const std::vector<size_t>& ends, size_t byte) {
    return std::upper_bound(ends.begin(), ends.end(), byte) - ends.begin();
  }

  int64_t tokens_before(const Transcript& text, size_t byte, const Example& example) const {
    return common_prefix(prompts_.encode(std::string_view(text.text).substr(0, byte)), example.ids);
  }

  /// Returns the index of the first token that begins at or after the byte.
  int64_t first_token_after(const Transcript& text, size_t byte, const std::vector<size_t>& ends,
                            const Example& example) const {
    if (!ends.empty()) return std::lower_bound(ends.begin(), ends.end(), byte) - ends.begin() + 1;
    const auto before = prompts_.encode(std::string_view(text.text).substr(0, byte));
    const int64_t common = common_prefix(before, example.ids);
    const bool holds_border = common < static_cast<int64_t>(std::min(before.size(), example.ids.size()));
    return common + (holds_border ? 1 : 0);
  }

  const tokenizer::Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  Prompts prompts_;
};

void add_row(EncodedRow row, size_t index, TokenizedRows& all) {
  all.cut += row.cut;
  all.windowed += row.windowed;
  all.last_only += row.last_only;
  if (!row.example || row.example->targets() <= 0) {
    ++all.without_target;
    return;
  }
  all.examples.push_back(std::move(*row.example));
  all.rows.push_back(static_cast<int64_t>(index));
}

}  // namespace

TokenizedRows tokenize_rows(std::span<const Row> rows, const tokenizer::Tokenizer& tokenizer,
                            const TokenizeOptions& options) {
  EK_CHECK(options.cutoff >= 2, kConfig, "cutoff is ", options.cutoff, ", allowed: 2 tokens or more");
  const RowEncoder encoder(tokenizer, options);
  TokenizedRows result;
  LeftOutRows left_out;
  for (size_t i = 0; i < rows.size(); ++i) {
    try {
      add_row(encoder.encode(rows[i]), i, result);
    } catch (const Error& error) {
      const auto place = rows[i].origin.empty() ? concat("training row ", i) : rows[i].origin;
      left_out.add(error.with_context(place), rows[i].is_required);
      result.left_out.push_back(static_cast<int64_t>(i));
    }
  }
  result.first_fault = left_out.first_fault();
  result.note = left_out.note(std::ssize(rows), "cannot be tokenised");
  return result;
}

std::string why_no_example(const TokenizedRows& tokenized, std::string_view limit) {
  const auto& note = tokenized.note;
  if (!note.empty() && tokenized.without_target == 0) return note;
  return concat(note, note.empty() ? "" : "; ", tokenized.without_target, " of ",
                tokenized.without_target + std::ssize(tokenized.left_out), " rows have no token of an answer within ",
                limit);
}

}  // namespace evenkeel::data
