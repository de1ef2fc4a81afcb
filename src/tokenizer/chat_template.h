/// \file  Renders conversations with the chat template of a model's folder, as transformers' apply_chat_template does.
/// Example:  tokenizer.chat_template().render(std::array{chat_message("user", "Hi")}, true).text
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"
#include "jinja/date.h"
#include "jinja/template.h"

namespace evenkeel::tokenizer {

/// Returns the message {"role": role, "content": content}. Texts are UTF-8.
jinja::Value chat_message(std::string_view role, std::string_view content);
/// Converts JSON to a template value. Objects keep their order of keys; null becomes none. \param place  prefix of
/// errors
/// \throws kData for a number beyond 64 bits, or for values nested too deeply.
jinja::Value chat_value(const OrderedJson& json, const std::string& place);

/// Template variables in addition to messages and add_generation_prompt, e.g. tools and documents.
using ChatVariables = std::vector<std::pair<std::string, jinja::Value>>;

/// A parsed chat template with the special tokens of its model. The const functions are thread-safe.
class ChatTemplate {
 public:
  /// Texts of bos_token, eos_token, ..., by name. A token that is missing here renders as an empty string.
  using SpecialTokens = std::map<std::string, std::string>;

  /// Reads the template of a model's folder: chat_template.jinja, or else `chat_template` of tokenizer_config.json. The
  /// latter is a string, or a list of named templates, of which "default" is used. The special tokens are
  /// special_tokens_of(folder).
  /// \throws kData naming the folder if it has no template, or the file and line of an error (jinja/template.h).
  static ChatTemplate of_model(const std::filesystem::path& folder);
  /// Reads the template from `file`, and the special tokens from the model's folder. \throws kIo, kData.
  static ChatTemplate of_file(const std::filesystem::path& file, const std::filesystem::path& folder);
  /// Parses a template. \param origin  prefix of error messages. \throws kData for an invalid template.
  ChatTemplate(std::string_view source, std::string origin, SpecialTokens special);

  /// Defines strftime_now, which returns this date. Without this call strftime_now is undefined. Not thread-safe.
  void use_date(const jinja::Date& date) { date_ = date; }

  /// Renders a conversation.
  /// \param messages  dicts with all keys of each message
  /// \param add_generation_prompt  true: the text ends with the opening of an assistant's turn
  /// \param more  further variables; they override others of the same name. `tools` and `documents` are none by
  /// default.
  /// \throws kData if the template raises an error.
  jinja::Rendered render(std::span<const jinja::Value> messages, bool add_generation_prompt,
                         const ChatVariables& more = {}) const;
  /// Returns true if the template has {% generation %} blocks. Rendered::generated then holds the byte ranges of the
  /// answers.
  bool marks_answers() const { return template_.marks_generation(); }
  /// Returns the prefix of error messages.
  const std::string& origin() const { return origin_; }
  /// Returns the text of the template.
  const std::string& source() const { return source_; }
  const SpecialTokens& special_tokens() const { return special_; }

 private:
  std::string origin_, source_;
  jinja::Template template_;
  SpecialTokens special_;
  std::optional<jinja::Date> date_;
};

/// Returns the special tokens that the folder's files and its tokenizer class define (tokenizer_folder.h).
ChatTemplate::SpecialTokens special_tokens_of(const std::filesystem::path& folder);

}  // namespace evenkeel::tokenizer
