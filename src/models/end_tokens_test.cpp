#include "models/end_tokens.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::models {
namespace {

using Ids = std::vector<int64_t>;

/// A folder with the two files. An empty text means that the file does not exist.
struct EndsOf {
  EndsOf(std::string_view config, std::string_view generation) {
    const testing::TemporaryFolder folder;
    write_file_atomic(folder.path() / "config.json", config);
    if (!generation.empty()) write_file_atomic(folder.path() / "generation_config.json", generation);
    const auto read = ModelConfig::load(folder.path() / "config.json");
    generated = ends_of_generation(read);
    behind = end_behind_texts(read);
  }
  Ids generated;
  int64_t behind;
};

TEST(EndTokens, AreAnIdOrAListInConfigJson) {
  EXPECT_EQ(EndsOf(R"({"eos_token_id": 3})", "").generated, Ids{3});
  EXPECT_EQ(EndsOf(R"({"eos_token_id": [3, 200, 3]})", "").generated, (Ids{3, 200}));
  EXPECT_EQ(EndsOf(R"({"eos_token_id": [3, 200]})", "").behind, 3);
  for (const auto* none : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": []})", R"({"eos_token_id": -1})"}) {
    EXPECT_EQ(EndsOf(none, "").generated, Ids{}) << none;
    EXPECT_EQ(EndsOf(none, "").behind, -1) << none;
  }
}

TEST(EndTokens, GenerationConfigTakesPrecedence) {
  const EndsOf both(R"({"eos_token_id": 3})", R"({"eos_token_id": [5, 7]})");
  EXPECT_EQ(both.generated, (Ids{5, 7}));
  EXPECT_EQ(both.behind, 3);
  EXPECT_EQ(EndsOf(R"({"eos_token_id": [3, 5]})", R"({"eos_token_id": 5})").generated, Ids{5});
  EXPECT_EQ(EndsOf("{}", R"({"eos_token_id": [5, 7]})").behind, 5);
}

TEST(EndTokens, AreEmptyIfGenerationConfigHasNone) {
  for (const auto* file : {"{}", R"({"max_length": 20})", R"({"eos_token_id": null})"}) {
    EXPECT_EQ(EndsOf(R"({"eos_token_id": 3})", file).generated, Ids{}) << file;
    EXPECT_EQ(EndsOf(R"({"eos_token_id": 3})", file).behind, 3) << file;
  }
}

TEST(EndTokens, MustBeIntegers) {
  EXPECT_THROW(EndsOf(R"({"eos_token_id": "3"})", ""), Error);
  EXPECT_THROW(EndsOf(R"({"eos_token_id": [3, 1.5]})", ""), Error);
  EXPECT_THROW(EndsOf(R"({"eos_token_id": 3})", R"({"eos_token_id": true})"), Error);
  EXPECT_THROW(EndsOf(R"({"eos_token_id": 3})", "[3]"), Error);
}

}  // namespace
}  // namespace evenkeel::models
