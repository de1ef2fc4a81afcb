#include "tokenizer/token_decoder.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "tokenizer/bpe.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/replace.h"

namespace evenkeel::tokenizer {
namespace {

constexpr size_t kMostDecoders = 32;  // because each runs over every token
constexpr size_t kMostLonger = 1024;  // times the bytes of the tokens
constexpr std::string_view kUnreadable = "\xEF\xBF\xBD";

using Tokens = std::vector<std::string>;

size_t bytes_of(const Tokens& tokens) {
  size_t bytes = 0;
  for (const auto& token : tokens) bytes += token.size();
  return bytes;
}

std::string joined_tokens(const Tokens& tokens, std::string_view between) {
  std::string out;
  for (const auto& token : tokens) {
    if (&token != tokens.data()) out += between;
    out += token;
  }
  return out;
}

void fuse(Tokens& tokens) { tokens = {joined_tokens(tokens, "")}; }

void decode_byte_level(Tokens& tokens) {
  std::string bytes;
  for (const auto& token : tokens) bytes += bytes_of_token(token).value_or(token);
  tokens = {unicode::replace_invalid(bytes)};
}

/// Returns the byte of a token such as "<0x41>", or nothing.
std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto value = parse_number<uint8_t>(std::string_view(token).substr(3, 2), 16);
  return value ? std::optional(static_cast<char>(*value)) : std::nullopt;
}

/// Replaces runs of byte tokens by the characters that they encode, or each byte by U+FFFD if they are invalid UTF-8.
void decode_bytes(Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (unicode::find_invalid(run) == std::string::npos) {
      if (!run.empty()) out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), std::string(kUnreadable));
    }
    run.clear();
  };
  for (auto& token : tokens) {
    if (const auto byte = byte_of(token)) {
      run += *byte;
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(out);
}

/// Removes spaces before punctuation and contractions, as in English text.
void clean_up(std::string& piece) {
  // clang-format off
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kWritten{{
      {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
      {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}};
  // clang-format on
  for (const auto& [apart, written] : kWritten)
    for (size_t at = 0; (at = piece.find(apart, at)) != std::string::npos; at += written.size())
      piece.replace(at, apart.size(), written);
}

struct WordPieces {
  std::string prefix;
  bool cleanup;

  void operator()(Tokens& tokens) const {
    for (auto& token : tokens) {
      const bool first = &token == tokens.data();
      if (!first) token = token.starts_with(prefix) ? token.substr(prefix.size()) : ' ' + token;
      if (cleanup) clean_up(token);
    }
  }
};

/// Removes `character` up to `start` times at the front and up to `stop` times at the end.
struct StripEnds {
  std::string character;
  int64_t start, stop;

  void operator()(Tokens& tokens) const {
    for (auto& token : tokens) {
      std::string_view text = token;
      for (int64_t i = 0; i < start && text.starts_with(character); ++i) text.remove_prefix(character.size());
      for (int64_t i = 0; i < stop && text.ends_with(character); ++i) text.remove_suffix(character.size());
      token = std::string(text);
    }
  }
};

/// Replaces the replacement character by a space; in the first token by nothing, if the pre-tokenizer prepends it.
struct Metaspaces {
  std::string replacement;
  bool prepends;

  void operator()(Tokens& tokens) const {
    for (auto& token : tokens) {
      const std::string_view space = prepends && &token == tokens.data() ? "" : " ";
      for (size_t at = 0; (at = token.find(replacement, at)) != std::string::npos; at += space.size())
        token.replace(at, replacement.size(), space);
    }
  }
};

StripEnds strip_of(const JsonView& json) {
  const auto content = json.at("content");
  const bool one =
      !content.string().empty() && unicode::decode(content.string().data()).length == content.string().size();
  content.require(one, " is ", shown(content.json()), ", expected one character");
  return {content.string(), json.at("start").integer(0, 1 << 20), json.at("stop").integer(0, 1 << 20)};
}

}  // namespace

TokenDecoder::TokenDecoder(const JsonView& json) {
  add(json);
  any_ = true;
}

/// Adds a decoder. JsonLimits::depth limits the nesting of sequences.
void TokenDecoder::add(const JsonView& json) {
  const auto type = json.at("type");
  const auto& kind = type.string();
  json.require(steps_.size() < kMostDecoders, ": more than ", kMostDecoders, " steps");
  is_byte_level_ = kind == "ByteLevel" && steps_.empty();
  if (kind == "ByteLevel") return steps_.emplace_back(decode_byte_level), void();
  if (kind == "ByteFallback") return steps_.emplace_back(decode_bytes), void();
  if (kind == "Fuse") return steps_.emplace_back(fuse), void();
  if (kind == "Strip") return steps_.emplace_back(strip_of(json)), void();
  if (kind == "WordPiece")
    return steps_.emplace_back(WordPieces{json.at("prefix").string(), json.at("cleanup").flag()}), void();
  if (kind == "Metaspace") {
    const auto metaspace = metaspace_of(json);
    return steps_.emplace_back(Metaspaces{metaspace.replacement, metaspace.scheme != Metaspace::kNever}), void();
  }
  if (kind == "Replace") {
    const auto replacement = std::make_shared<const Replacement>(json);
    steps_.emplace_back([replacement](Tokens& tokens) {
      for (auto& token : tokens) token = replacement->apply(token).value_or(token);
    });
    return;
  }
  type.require(kind == "Sequence", " is ", shown(type.json()),
               ", allowed: ByteLevel, WordPiece, Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence");
  for (const auto& part : json.at("decoders").items()) add(part);
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  if (!any_) return joined_tokens(tokens, " ");
  const size_t most = kMostLonger * (bytes_of(tokens) + 1);
  for (const auto& step : steps_) {
    step(tokens);
    EK_CHECK(bytes_of(tokens) <= most, kData, "decoder: tokens become a text of ", bytes_of(tokens), " bytes");
  }
  return joined_tokens(tokens, "");
}

}  // namespace evenkeel::tokenizer
