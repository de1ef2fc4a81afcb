// Tests the reader of tasks/telequad.cpp with a small file of the same structure and with the published file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/testing.h"
#include "data/partition.h"
#include "data/prompt.h"
#include "data/tasks.h"
#include "data/text_metrics.h"

namespace evenkeel::data {
namespace {

constexpr const char* kFile = "TeleQuAD-v4-full.json";

Json answer(const std::string& text, int64_t start) {
  return {{"text", text}, {"answer_start", start}, {"answer_end", start + 1}, {"contributor", "7"}};
}

Json question(const std::string& id, const std::vector<Json>& answers, bool impossible = false) {
  return {{"id", id},
          {"type", "SHORT"},
          {"question", "What is " + id + "?"},
          {"answers", answers},
          {"is_impossible", impossible},
          {"contributor", "7"}};
}

Json document(int64_t docid, const std::string& source, const std::string& context,
              const std::vector<Json>& questions) {
  return {{"docid", std::to_string(docid)},
          {"title", source},
          {"source", source},
          {"paragraphs", Json::array({Json{{"qas", questions}, {"context", context}}})}};
}

/// Returns a file with two specs (one with two sections) and a page. Its offsets count code points.
Json small_file() {
  const std::string context = "Über den Wolken muss die\nFreiheit wohl grenzenlos sein";
  return {{"version", "small"},
          {"data",
           {document(1, "3GPP-Specs#11111-a00#01", context,
                     {question("q1", {answer("Wolken", 9), answer("", 0), answer("den Wolken ", 5)}),
                      question("q2", {answer("die Freiheit", 21)})}),
            document(137, "3GPP-Specs#11111-a00#02", context, {question("q3", {answer("sein", 50)})}),
            document(138, "https://page.example/one", context, {question("q4", {answer("Ü", 0)})}),
            document(200, "3GPP-Specs#22222-a00", context,
                     {question("q5", {answer("muss", 16)}), question("q6", {answer("Wolken", 9)}, true)}),
            document(273, "https://page.example/one", context, {question("q7", {answer("wohl", 34)})})}}};
}

class Telequad : public ::testing::Test {
 protected:
  Telequad() { write(small_file()); }

  void write(const Json& json) const { write_file_atomic(folder_ / kFile, json.dump()); }
  RowOptions options(const TelequadConfig& telequad = {}, const std::string& label = "label") const {
    return {.path = folder_, .label = label, .telequad = telequad};
  }
  TaskRows training(const RowOptions& from) const { return training_rows("telequad", from); }
  TaskRows testing_rows(const RowOptions& from) const { return test_rows(find_task("telequad"), from); }
  static std::vector<std::string> questions(const TaskRows& set) {
    std::vector<std::string> all;
    for (const auto& row : set.rows) all.push_back(row.instruction);
    return all;
  }
  std::string complaint() const {
    try {
      training(options());
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  /// Returns the error message of reading the small file after `change`.
  std::string complaint_after(const std::function<void(Json&)>& change) const {
    auto json = small_file();
    change(json["data"][1]);
    write(json);
    return complaint();
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

using Texts = std::vector<std::string>;

TEST_F(Telequad, ARowHasQuestionContextAndFirstAnswer) {
  const auto set = training(options());
  ASSERT_EQ(set.rows.size(), 3u);
  EXPECT_EQ(set.rows[0].instruction, "What is q1?");
  EXPECT_TRUE(set.rows[0].input.starts_with("Über den"));
  EXPECT_EQ(set.rows[0].output, "Wolken");
  EXPECT_EQ(set.rows[0].answer, "Wolken");
  EXPECT_EQ(set.rows[0].references, (Texts{"Wolken", "den Wolken"}));
  EXPECT_NE(training_prompt(set.rows[0], PromptTemplate::kPaper).find("\n\n### Context:\nÜber den"), std::string::npos);
}

TEST_F(Telequad, OffsetsCountCodePointsAndLineEndsMatchSpaces) {
  const auto set = training(options());
  EXPECT_EQ(set.rows[0].input.substr(static_cast<size_t>(set.rows[0].answer_at), 6), "Wolken");
  EXPECT_EQ(set.rows[1].input.substr(static_cast<size_t>(set.rows[1].answer_at), 12), "die\nFreiheit");
  EXPECT_EQ(set.rows[1].output, "die Freiheit");
}

TEST_F(Telequad, TheDefaultSplitGoesByDocumentNumber) {
  EXPECT_EQ(questions(training(options())), (Texts{"What is q1?", "What is q2?", "What is q3?"}));
  EXPECT_EQ(questions(testing_rows(options())), (Texts{"What is q5?"}));
}

TEST_F(Telequad, ImpossibleQuestionsAreFilteredByTheirFlag) {
  const auto set = testing_rows(options({.impossible = true}));
  EXPECT_EQ(questions(set), (Texts{"What is q5?", "What is q6?"}));
  EXPECT_EQ(set.rows[1].output, "unanswerable");
  EXPECT_EQ(set.rows[1].references, Texts{"unanswerable"});
  EXPECT_EQ(set.rows[1].answer_at, -1);
}

TEST_F(Telequad, RowsAreLabelledByTheConfiguredKey) {
  const auto labels = [&](const std::string& key) {
    Texts all;
    for (const auto& row : training(options({}, key)).rows) all.push_back(row.label);
    return all;
  };
  EXPECT_EQ(labels("docid"), (Texts{"1", "1", "137"}));
  EXPECT_EQ(labels("source"), (Texts{"3GPP-Specs#11111-a00#01", "3GPP-Specs#11111-a00#01", "3GPP-Specs#11111-a00#02"}));
  EXPECT_EQ(labels("spec"), Texts(3, "3GPP-Specs#11111-a00"));
  EXPECT_EQ(labels("label"), labels("spec"));
  EXPECT_THROW(labels("title"), Error);
}

TEST_F(Telequad, RandomSplitsAreCompleteAndKeepGroupsTogether) {
  for (const auto split : {TelequadSplit::kDocuments, TelequadSplit::kSpecs, TelequadSplit::kQuestions})
    for (int64_t seed = 0; seed < 8; ++seed) {
      const auto from = options({.split = split, .split_seed = seed, .train_share = 0.7},
                                split == TelequadSplit::kDocuments ? "docid" : "spec");
      const auto train = training(from), test = testing_rows(from);
      EXPECT_LE(train.rows.size(), 4u);
      EXPECT_EQ(train.rows.size() + test.rows.size(), 6u);
      std::set<std::string> seen;
      for (const auto& row : train.rows) seen.insert(row.label);
      for (const auto& row : test.rows)
        EXPECT_TRUE(split == TelequadSplit::kQuestions || !seen.contains(row.label)) << row.label;
    }
}

TEST_F(Telequad, ARandomSplitDependsOnlyOnItsSeed) {
  const auto sides = [&](int64_t split_seed, uint64_t seed) {
    auto from = options({.split = TelequadSplit::kQuestions, .split_seed = split_seed});
    from.seed = seed;
    return questions(training(from));
  };
  EXPECT_EQ(sides(1, 1), sides(1, 2));
  std::set<Texts> different;
  for (int64_t seed = 0; seed < 10; ++seed) different.insert(sides(seed, 1));
  EXPECT_GT(different.size(), 3u);
}

TEST_F(Telequad, ALimitDrawsCompleteRows) {
  auto from = options();
  from.limit = 2;
  const auto set = training(from);
  ASSERT_EQ(set.rows.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(set.rows[i].references.at(0), set.rows[i].output);
}

TEST_F(Telequad, ReportsADifferentFile) {
  const auto set = training(options());
  EXPECT_NE(set.note.find("not the published file"), std::string::npos);
  EXPECT_EQ(set.files, Texts{(folder_ / kFile).string()});
}

TEST_F(Telequad, ErrorsNameThePositionInTheFile) {
  const auto expect = [](const std::string& line, std::vector<std::string> words) {
    for (const auto& word : words) EXPECT_NE(line.find(word), std::string::npos) << line << "\nlacks: " << word;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  };
  const auto qa = [](Json& doc) -> Json& { return doc["paragraphs"][0]["qas"][0]; };
  expect(complaint_after([](Json& doc) { doc.erase("docid"); }), {kFile, "data[1].docid is missing"});
  expect(complaint_after([](Json& doc) { doc["source"] = 3; }), {"data[1].source is 3, expected a string"});
  expect(complaint_after([](Json& doc) { doc["paragraphs"] = "none"; }),
         {"data[1].paragraphs is \"none\", expected a list"});
  expect(complaint_after([](Json& doc) { doc["paragraphs"][0].erase("context"); }),
         {"data[1].paragraphs[0].context is missing"});
  expect(complaint_after([&](Json& doc) { qa(doc) = 3; }), {"data[1].paragraphs[0].qas[0] is 3, expected an object"});
  expect(complaint_after([&](Json& doc) { qa(doc).erase("is_impossible"); }), {"qas[0].is_impossible is missing"});
  expect(complaint_after([&](Json& doc) { qa(doc)["answers"] = Json::array(); }), {"qas[0] has no answer"});
  expect(complaint_after([&](Json& doc) { qa(doc)["answers"][0]["answer_start"] = "x"; }),
         {"qas[0].answers[0].answer_start is \"x\"", "a whole number"});
  for (const int64_t start : {int64_t{-1}, int64_t{49}, int64_t{51}, int64_t{100000}})
    expect(complaint_after([&](Json& doc) { qa(doc)["answers"][0]["answer_start"] = start; }),
           {"qas[0].answers[0]", "\"sein\"", concat("answer_start ", start)});
  expect(complaint_after([&](Json& doc) { qa(doc)["answers"][0]["answer_start"] = uint64_t{1} << 63; }),
         {"answer_start is 9223372036854775808, allowed: whole numbers of 64 bits"});
  expect(complaint_after([](Json& doc) { doc["docid"] = "one"; }), {"docid", "one", "order"});
  write(Json::array());
  expect(complaint(), {kFile, "expected an object"});
  write({{"data", Json::array()}});
  expect(complaint(), {kFile, "no questions to train on", "order"});
  write_file_atomic(folder_ / kFile, R"({"data": [)");
  expect(complaint(), {kFile});
  fs::remove(folder_ / kFile);
  expect(complaint(), {kFile});
}

// --- the published file ---

class PublishedTelequad : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::data_folder() / "telequad";
    if (!fs::exists(folder_ / kFile)) GTEST_SKIP() << (folder_ / kFile).string() << " is not there";
  }
  /// Returns every question, with a split that has no test rows.
  TaskRows everything(const std::string& label, bool impossible = false) const {
    return training_rows(
        "telequad", {.path = folder_,
                     .label = label,
                     .telequad = {.split = TelequadSplit::kQuestions, .train_share = 1.0, .impossible = impossible}});
  }
  std::map<std::string, int64_t> groups(const std::string& label) const {
    std::map<std::string, int64_t> counts;
    for (const auto& row : everything(label).rows) ++counts[row.label];
    return counts;
  }

  fs::path folder_;
};

TEST_F(PublishedTelequad, HasItsPublishedCounts) {
  const auto set = everything("label");
  EXPECT_EQ(set.note, "");
  EXPECT_EQ(set.rows.size(), 4262u);
  EXPECT_EQ(everything("label", /*impossible=*/true).rows.size(), 4485u);
  std::set<std::string> strings;
  for (const auto& row : set.rows) strings.insert(row.instruction);
  EXPECT_EQ(strings.size(), 4184u);
  std::map<size_t, int64_t> annotators;
  for (const auto& row : set.rows) ++annotators[row.references.size() > 1 ? 2 : 1];
  EXPECT_EQ(annotators[1], 2379 + 9);  // nine second answers are empty
  EXPECT_EQ(annotators[2], 1883 - 9);
}

TEST_F(PublishedTelequad, HasItsPublishedGroups) {
  EXPECT_EQ(groups("docid").size(), 533u);
  EXPECT_EQ(groups("source").size(), 369u);
  const auto specs = groups("spec");
  EXPECT_EQ(specs.size(), 98u);
  int64_t in_specs = 0, files = 0;
  for (const auto& [name, rows] : specs)
    if (name.starts_with("3GPP-Specs#")) in_specs += rows, ++files;
  EXPECT_EQ(in_specs, 3439);
  EXPECT_EQ(files, 14);
  EXPECT_EQ(specs.at("3GPP-Specs#21915-f00"), 849);
  EXPECT_EQ(specs.at("3GPP-Specs#25211-f00"), 441);
  EXPECT_EQ(specs.at("3GPP-Specs#23273-g50"), 228);
}

TEST_F(PublishedTelequad, DefaultSplitHasThePublishedSizesAndNoCommonDocument) {
  const RowOptions by_document{.path = folder_, .label = "docid"};
  const auto train = training_rows("telequad", by_document), test = test_rows(find_task("telequad"), by_document);
  EXPECT_EQ(train.rows.size(), 1018u);
  EXPECT_EQ(test.rows.size(), 1003u);
  std::set<std::string> seen;
  for (const auto& row : train.rows) seen.insert(row.label);
  for (const auto& row : test.rows) ASSERT_FALSE(seen.contains(row.label)) << row.label;
}

TEST_F(PublishedTelequad, RandomSplitsComeCloseToTheirShare) {
  for (const auto split : {TelequadSplit::kDocuments, TelequadSplit::kSpecs, TelequadSplit::kQuestions}) {
    const auto set = training_rows("telequad", {.path = folder_, .telequad = {.split = split}});
    EXPECT_NEAR(static_cast<double>(set.rows.size()), 2131, 2) << config::name_of(split);
  }
}

TEST_F(PublishedTelequad, EveryAnswerIsAtItsOffsetAndMatchesItself) {
  const auto set = everything("label");
  for (size_t i = 0; i < set.rows.size(); ++i) {
    const auto& row = set.rows[i];
    const auto there = row.input.substr(static_cast<size_t>(set.rows[i].answer_at), row.output.size());
    ASSERT_EQ(best_match(there, std::vector{row.output}).exact_match, 1) << there;
    ASSERT_EQ(best_match(row.output, set.rows[i].references).f1, 1) << row.output;
  }
}

/// The numbers of tokens, end of text included, were counted with the same prompt by another tokenizer.
TEST_F(PublishedTelequad, LongPromptsBecomeWindowsWithQuestionAndAnswer) {
  const auto file = folder_ / ".." / "tokenizer" / "allenai_gpt-neox-olmo-dolma-v1_5.json";
  if (!fs::exists(file)) GTEST_SKIP() << file.string() << " is not there";
  const auto tokenizer = tokenizer::Tokenizer::load(file);
  const auto set = everything("label");
  for (const auto& [cutoff, longer] : {std::pair(4096, 46), {2048, 321}, {1024, 1065}}) {
    const auto all = tokenize_rows(set.rows, tokenizer, {.cutoff = cutoff, .eos = 50279});
    EXPECT_EQ(all.cut, longer);
    EXPECT_EQ(all.windowed + all.without_target, longer);
    EXPECT_LE(all.without_target, cutoff > 1024 ? 0 : 1);  // one answer of nearly 500 tokens is in the prompt twice
    for (size_t i = 0; i < all.rows.size(); ++i) {
      const auto& row = set.rows[static_cast<size_t>(all.rows[i])];
      const auto& example = all.examples[i];
      ASSERT_LE(static_cast<int64_t>(example.ids.size()), cutoff);
      const auto prompt = tokenizer.decode(std::span(example.ids).first(static_cast<size_t>(example.first_target)));
      const auto context = prompt.find("\n\n### Context:\n");
      ASSERT_TRUE(prompt.substr(0, context).ends_with("### Instruction:\n" + row.instruction)) << prompt;
      auto shown = prompt.substr(context);
      if (shown.find(row.output) == std::string::npos) std::replace(shown.begin(), shown.end(), '\n', ' ');
      ASSERT_NE(shown.find(row.output), std::string::npos) << row.output << "\n" << prompt;
    }
  }
}

/// The skew of data with 98 and 533 groups at alpha 0.1: strong by spec, mild by document.
TEST_F(PublishedTelequad, DirichletBySpecIsMuchMoreSkewedThanByDocument) {
  const auto largest_share = [&](const std::string& key) {
    std::vector<std::string> labels;
    for (const auto& row : everything(key).rows) labels.push_back(row.label);
    double most = 0;
    for (const auto& shard : partition(labels, std::vector<double>(8, 1.0),
                                       {.kind = PartitionKind::kDirichlet, .alpha = 0.1, .key = key}, 42)) {
      EXPECT_NEAR(static_cast<double>(shard.size()), 532.5, 1);
      std::map<std::string, double> counts;
      for (const int64_t row : shard)
        most = std::max(most, ++counts[labels[static_cast<size_t>(row)]] / static_cast<double>(shard.size()));
    }
    return most;
  };
  EXPECT_GT(largest_share("spec"), 0.35);
  EXPECT_LT(largest_share("docid"), 0.2);
}

}  // namespace
}  // namespace evenkeel::data
