/// \file  The chat template that a model's folder brings along, and the special tokens it writes; rendered as
/// transformers' apply_chat_template does.
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

namespace evenkeel {

/// {"role": role, "content": content}. Texts are UTF-8.
jinja::Value chat_message(std::string_view role, std::string_view content);
/// JSON as a template sees it: objects in their order, null as none. \param place  what errors begin with.
/// \throws kData for a number beyond 64 bits, and for what is nested too deep
jinja::Value chat_value(const OrderedJson& json, const std::string& place);

/// Names that a template may use beside messages and add_generation_prompt: tools, documents and others.
using ChatVariables = std::vector<std::pair<std::string, jinja::Value>>;

/// Threads may render side by side.
class ChatTemplate {
 public:
  /// bos_token, eos_token, ...: what a template may name; one that a tokenizer lacks writes nothing.
  using SpecialTokens = std::map<std::string, std::string>;

  /// chat_template.jinja of the folder, else the `chat_template` of its tokenizer_config.json: a text, or a list of
  /// named ones, of which "default" is taken. Special tokens are those that the folder's files and the
  /// tokenizer's class name (tokenizer_folder.h). \throws kData naming the folder that has no template, or
  /// the file and line that cannot be read (jinja/template.h)
  static ChatTemplate of_model(const std::filesystem::path& folder);
  /// A template of one's own, for a model that has none or another; special tokens are those of the model's folder.
  static ChatTemplate of_file(const std::filesystem::path& file, const std::filesystem::path& folder);
  /// \param origin  what errors begin with
  ChatTemplate(std::string_view source, std::string origin, SpecialTokens special);

  /// From now on strftime_now is defined and writes this moment. Not thread-safe.
  void use_date(const jinja::Date& date) { date_ = date; }

  /// \param messages  dicts, each with all keys that its message has
  /// \param add_generation_prompt  ends with what opens an assistant's turn
  /// \param more  variables; tools and documents are none where they are not among these. \throws kData when the
  /// template refuses
  jinja::Rendered render(std::span<const jinja::Value> messages, bool add_generation_prompt,
                         const ChatVariables& more = {}) const;
  /// Whether {% generation %} says which parts are answers; `generated` holds them then.
  bool marks_answers() const { return template_.marks_generation(); }
  const std::string& origin() const { return origin_; }
  const std::string& source() const { return source_; }  ///< the text of the template
  const SpecialTokens& special_tokens() const { return special_; }

 private:
  std::string origin_, source_;
  jinja::Template template_;
  SpecialTokens special_;
  std::optional<jinja::Date> date_;
};

/// The special tokens that a folder's files and its tokenizer's class name, as of_model() takes them.
ChatTemplate::SpecialTokens special_tokens_of(const std::filesystem::path& folder);

/// The files of a folder that of_model() reads and tokenizer_files() does not name, those that are there.
std::vector<std::filesystem::path> chat_template_files(const std::filesystem::path& folder);

}  // namespace evenkeel
