#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/plain/log.h"
#include "base/plain/text.h"
#include "tokenizer/library_number.h"
#include "tokenizer/tokenizer_folder.h"

namespace evenkeel::tokenizer {
namespace {

constexpr int64_t kLargestId = int64_t{1} << 22;  // limit, because tables are as long as the largest id

constexpr int64_t kMostTemplates = 16;     // because each is applied to every text
constexpr size_t kMostTemplateIds = 1024;  // limit of ids that are added to every text

int64_t id_of(const JsonView& json) { return json.integer(0, kLargestId); }

std::string type_of(const JsonView& json) { return json.at("type").string(); }

[[noreturn]] void refuse_type(const JsonView& json, std::string_view allowed) {
  const auto type = json.at("type");
  type.refuse(" is ", shown(type.json()), ", allowed: ", allowed);
}

void read_vocabulary(const JsonView& json, TokenizerFile& out) {
  std::unordered_set<int64_t> seen;
  out.vocabulary.reserve(json.size());
  for (const auto& token : json.members()) {
    const int64_t id = id_of(token);
    token.require(seen.insert(id).second, " has id ", id, ", which another token has too");
    out.vocabulary.emplace(token.key(), id);
  }
}

/// Reads a merge: a pair ["a", "b"] or, in older files, one string "a b".
std::pair<std::string, std::string> merge_of(const JsonView& json) {
  if (json.json().is_array() && json.size() == 2) return {json.at(0).string(), json.at(1).string()};
  const std::string_view line = json.json().is_string() ? std::string_view(json.string()) : std::string_view();
  const size_t gap = line.find(' ');
  const bool two = gap != line.npos && line.find(' ', gap + 1) == line.npos;
  if (!two) json.refuse(" is ", shown(json.json()), ", expected \"a b\" or [\"a\", \"b\"]");
  return {std::string(line.substr(0, gap)), std::string(line.substr(gap + 1))};
}

void read_merges(const JsonView& json, TokenizerFile& out) {
  const auto merges = json.items();
  out.merges.reserve(merges.size());
  for (const auto& merge : merges)
    if (!merge.json().is_string() || !merge.string().starts_with("#version")) out.merges.push_back(merge_of(merge));
}

void read_word_piece(const JsonView& json, TokenizerFile& out) {
  out.word_piece = {.unk_token = json.at("unk_token").string(),
                    .prefix = json.at("continuing_subword_prefix").string(),
                    .max_characters = json.at("max_input_chars_per_word").integer(0)};
  read_vocabulary(json.at("vocab"), out);
}

/// Reads pieces [["a", -1.5], ...]. The library ignores other keys, such as fuse_unk, and so does this function.
void read_unigram(const JsonView& json, TokenizerFile& out) {
  auto& options = out.unigram.emplace();
  if (const auto unknown = json.find("unk_id")) options.unk_id = unknown->integer(0, kLargestId);
  options.byte_fallback = json.flag_or("byte_fallback", false);
  const auto vocab = json.at("vocab");
  vocab.list().require(vocab.size() <= kLargestId, " has ", vocab.size(), " pieces, allowed: up to ", kLargestId);
  out.vocabulary.reserve(vocab.size());
  for (const auto& entry : vocab.items()) {
    entry.require(entry.list().size() == 2, " is ", shown(entry.json()), ", expected [\"piece\", score]");
    out.vocabulary.insert_or_assign(entry.at(0).string(), static_cast<int64_t>(options.pieces.size()));
    options.pieces.push_back(entry.at(0).string());
    options.scores.push_back(as_library_reads(entry.at(1).number()));
  }
}

/// Checks that an unsupported feature is off. \throws Error unless the value under `key` is absent or one of `allowed`
void require_unused(const JsonView& json, std::string_view key, std::initializer_list<Json> allowed) {
  const auto value = json.find(key);
  if (!value || std::find(allowed.begin(), allowed.end(), value->json()) != allowed.end()) return;
  value->refuse(" is ", shown(value->json()), ", allowed: null");
}

void read_bpe(const JsonView& json, TokenizerFile& out) {
  require_unused(json, "dropout", {false, 0});
  require_unused(json, "continuing_subword_prefix", {""});
  require_unused(json, "end_of_word_suffix", {""});
  out.bpe.byte_fallback = json.flag_or("byte_fallback", false);
  if (const auto unknown = json.find("unk_token")) out.bpe.unk_token = unknown->string();
  out.bpe.fuse_unk = json.flag_or("fuse_unk", false);
  out.bpe.ignore_merges = json.flag_or("ignore_merges", false);
  read_vocabulary(json.at("vocab"), out);
  read_merges(json.at("merges"), out);
}

void read_model(const JsonView& json, TokenizerFile& out) {
  const auto type = json.string_or("type", json.at("vocab").json().is_array() ? "Unigram" : "BPE");
  if (type == "BPE") return read_bpe(json, out);
  if (type == "WordPiece") return read_word_piece(json, out);
  if (type == "Unigram") return read_unigram(json, out);
  refuse_type(json, "BPE, WordPiece, Unigram");
}

AddedToken added_of(const JsonView& json) {
  AddedToken token;
  token.id = id_of(json.at("id"));
  token.content = json.at("content").string();
  token.single_word = json.flag_or("single_word", false);
  token.lstrip = json.flag_or("lstrip", false);
  token.rstrip = json.flag_or("rstrip", false);
  token.normalized = json.flag_or("normalized", false);
  token.special = json.flag_or("special", false);
  return token;
}

/// Returns the library's id of the next new token: the largest added id + 1, but at least the vocabulary's size.
int64_t next_id(const TokenizerFile& file) {
  auto next = static_cast<int64_t>(file.unigram ? file.unigram->pieces.size() : file.vocabulary.size());
  for (const auto& token : file.added) next = std::max(next, token.id + 1);
  return next;
}

/// Adds tokens as the tokenizers library does: a given id is used only if the vocabulary has the token. A token that
/// already exists gets the new flags but stays special.
void add_tokens(std::vector<AddedToken> tokens, std::string_view place, TokenizerFile& out) {
  std::unordered_map<std::string, size_t> index;
  for (size_t i = 0; i < out.added.size(); ++i) index.emplace(out.added[i].content, i);
  int64_t next = next_id(out);
  for (auto& token : tokens) {
    if (token.content.empty()) continue;
    const auto [known, is_new] = index.emplace(token.content, out.added.size());
    const auto in_vocabulary = out.vocabulary.find(token.content);
    const int64_t id = in_vocabulary != out.vocabulary.end() ? in_vocabulary->second
                       : !is_new                             ? out.added[known->second].id
                                                             : next++;
    if (token.id >= 0 && id != token.id)
      log::warning("[data] ", place, ": added token \"", shown(token.content), "\" is listed with id ", token.id,
                   " but has id ", id);
    token.id = id;
    if (is_new) {
      out.added.push_back(std::move(token));
      continue;
    }
    token.special |= out.added[known->second].special;
    out.added[known->second] = std::move(token);
  }
}

void read_added(const JsonView& json, TokenizerFile& out) {
  std::vector<AddedToken> tokens;
  for (const auto& entry : json.items()) tokens.push_back(added_of(entry));
  add_tokens(std::move(tokens), json.place(), out);
}

TemplatePiece special_piece(const JsonView& json) {
  json.require(json.list().size() == 2, " is ", shown(json.json()), ", expected [token, id]");
  return {false, {id_of(json.at(1))}};
}

TemplatePiece template_piece(const JsonView& json, const JsonView& specials) {
  if (const auto sequence = json.find("Sequence")) {
    const auto id = sequence->at("id");
    id.require(id.json() == "A", " is ", shown(id.json()), ", allowed: \"A\"");
    return {true, {}};
  }
  return {false, specials.at(json.at("SpecialToken").at("id").string()).at("ids").integers(0, kLargestId)};
}

Template read_template(const JsonView& json) {
  const auto single = json.at("single"), specials = json.at("special_tokens");
  Template out;
  size_t sequences = 0, ids = 0;
  for (const auto& piece : single.items()) {
    out.push_back(template_piece(piece, specials));
    sequences += out.back().is_sequence ? 1 : 0;
    ids += out.back().ids.size();
    piece.require(sequences <= 1, ": the sequence stands twice in a template, allowed: once");
    piece.require(ids <= kMostTemplateIds, ": a template of more than ", kMostTemplateIds, " special tokens");
  }
  return out;
}

void read_post_processor(const JsonView& json, TokenizerFile& out) {
  const auto type = type_of(json);
  if (type == "ByteLevel") return;  // it changes offsets only
  if (type == "Sequence") {
    for (const auto& part : json.at("processors").items()) read_post_processor(part, out);
    return;
  }
  if (type == "TemplateProcessing")
    out.templates.push_back(read_template(json));
  else if (type == "RobertaProcessing" || type == "BertProcessing")
    out.templates.push_back({special_piece(json.at("cls")), {true, {}}, special_piece(json.at("sep"))});
  else
    refuse_type(json, "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence");
  json.require(out.templates.size() <= kMostTemplates, ": more than ", kMostTemplates, " templates");
}

/// Reads the pre-tokenizer. WordPiece needs BERT's.
void read_words(const JsonView& json, TokenizerFile& out) {
  const auto words = json.find("pre_tokenizer");
  if (!out.word_piece) {
    if (words) out.pre_tokenizer = PreTokenizer(*words);
    out.bpe.byte_level = out.pre_tokenizer.has_byte_level();
    json.require(!out.pre_tokenizer.asks_for_first() || !out.normalizer.moves_start(),
                 ": Metaspace with prepend_scheme \"first\" behind a normalizer that may remove the first character is "
                 "not supported");
    return;
  }
  json.require(words && type_of(*words) == "BertPreTokenizer", ": pre_tokenizer is ",
               words ? shown(words->json()) : "null", ", allowed with WordPiece: BertPreTokenizer");
}

TokenizerFile read_parts(const JsonView& json) {
  const auto version = json.find("version");
  json.require(!version || version->json() == "1.0", ": version is ", version ? shown(version->json()) : "",
               ", allowed: \"1.0\"");
  for (const char* setting : {"truncation", "padding"})
    if (json.has(setting))
      log::warning("[data] ", json.place(), ": ", setting, " is ignored, texts are always encoded whole");
  TokenizerFile out;
  read_model(json.at("model"), out);
  if (const auto added = json.find("added_tokens")) read_added(*added, out);
  if (const auto normalizer = json.find("normalizer")) out.normalizer = Normalizer(*normalizer);
  if (const auto processor = json.find("post_processor")) read_post_processor(*processor, out);
  if (const auto decoder = json.find("decoder")) out.decoder = TokenDecoder(*decoder);
  read_words(json, out);
  return out;
}

}  // namespace

TokenizerFile read_tokenizer_folder(const std::filesystem::path& folder) {
  TokenizerFolder files(folder);
  auto additions = files.additions();
  const bool splits = files.splits_special_tokens();
  const Json json = files.take_tokenizer();
  auto out = read_parts(JsonView(json, (folder / "tokenizer.json").string()));
  for (auto& tokens : additions) add_tokens(std::move(tokens), folder.string(), out);
  for (auto& token : out.added) token.is_text = splits && token.special;
  return out;
}

TokenizerFile read_tokenizer_file(const std::filesystem::path& file) {
  const Json json = load_json(file, kData);
  return read_parts(JsonView(json, file.string()));
}

}  // namespace evenkeel::tokenizer
