/// \file  Renders conversations with the chat templates of a model's folder, as transformers' apply_chat_template does.
/// Example:  tokenizer.chat_templates().of({}).render(std::array{chat_message("user", "Hi")}, true).text
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "jinja/date.h"
#include "jinja/template.h"

namespace evenkeel::tokenizer {

/// Returns the message {"role": role, "content": content}. Texts are UTF-8.
jinja::Value chat_message(std::string_view role, std::string_view content);
/// Parses JSON for chat_value(), keeping the order of keys. A whole number beyond 64 bits becomes a binary value that
/// holds its digits; parse_json() would round it. \throws kData as parse_json()
OrderedJson chat_json(std::string_view text, const std::string& place);
/// Converts JSON to a template value. Objects keep their order of keys; null becomes none. \param place  prefix of
/// errors
/// \throws kData for a whole number beyond 64 bits, or for values nested too deeply.
jinja::Value chat_value(const OrderedJson& json, const std::string& place);

/// Template variables in addition to messages and add_generation_prompt, e.g. tools and documents.
using ChatVariables = std::vector<std::pair<std::string, jinja::Value>>;

/// A parsed chat template with the special tokens of its model. The const functions are thread-safe.
class ChatTemplate {
 public:
  /// Texts of bos_token, eos_token, ..., by name. A token that is missing here renders as an empty string.
  using SpecialTokens = std::map<std::string, std::string>;

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

/// The chat templates of a model by name. Conversations with tools use `tool_use` if it exists, all others `default`. A
/// single template without a name is `default`. This is the rule of transformers' get_chat_template. Other templates,
/// such as `rag`, are not used. The const functions are thread-safe.
class ChatTemplates {
 public:
  /// Reads the templates of a model's folder as transformers 5 does: chat_template.jinja is `default`, and
  /// additional_chat_templates/NAME.jinja is NAME. Without any of these files, `chat_template` of tokenizer_config.json
  /// counts: a text, a list of {"name", "template"}, or an object of names. chat_template.json is for processors, not
  /// for tokenizers. The special tokens are special_tokens_of(folder).
  /// \throws kData naming the folder if it has no template, or the file and line of an error (jinja/template.h). An
  /// error in tool_use is thrown where it is used.
  static ChatTemplates of_model(const std::filesystem::path& folder);
  /// Reads one template from `file`, for all conversations, and the special tokens from the model's folder. The file
  /// may also be the JSON object that source() returns for several templates. \throws kIo, kData.
  static ChatTemplates of_file(const std::filesystem::path& file, const std::filesystem::path& folder);

  /// Returns the template of a conversation with these variables. It is for tools where `tools` is given and not none,
  /// even if it is an empty list. \throws kData if that template does not exist or is invalid
  const ChatTemplate& of(const ChatVariables& variables) const;
  /// Returns true if conversations with tools have a template of their own.
  bool has_tool_use() const { return tool_use_ || tool_use_fault_; }
  /// Returns true if of() returns that template.
  bool uses_tool_use(const ChatVariables& variables) const;
  /// Returns the text of the template, or of several as a JSON object of names.
  const std::string& source() const { return source_; }
  /// Returns the special tokens of the model.
  const ChatTemplate::SpecialTokens& special_tokens() const { return special_; }
  /// Calls ChatTemplate::use_date() of all templates. Not thread-safe.
  void use_date(const jinja::Date& date);

 private:
  /// A template as it is written.
  struct Source {
    std::string name, text, origin;
  };
  ChatTemplates(std::vector<Source> sources, std::string origin, ChatTemplate::SpecialTokens special);
  static std::vector<Source> in_files(const std::filesystem::path& folder);
  static std::vector<Source> in_config(const std::filesystem::path& folder);
  static std::vector<Source> in_json(const JsonView& json);

  std::string origin_, source_;
  std::vector<std::string> names_;
  ChatTemplate::SpecialTokens special_;
  std::optional<ChatTemplate> default_, tool_use_;
  std::optional<Error> tool_use_fault_;
};

/// Returns the special tokens that the folder's files and its tokenizer class define (tokenizer_folder.h).
ChatTemplate::SpecialTokens special_tokens_of(const std::filesystem::path& folder);

/// Returns the existing files of a folder that ChatTemplates::of_model() reads, without tokenizer_config.json.
std::vector<std::filesystem::path> chat_template_files(const std::filesystem::path& folder);

}  // namespace evenkeel::tokenizer
