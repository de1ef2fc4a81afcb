#include "flower/federation/rows_error.h"

#include <gtest/gtest.h>

#include <vector>

namespace evenkeel::flower {
namespace {

const std::vector<std::string> kFiles{"/home/anna/bad.jsonl", "rows/ward 7.json"};

std::string told(const std::string& message, ErrorKind kind = kData) {
  return reason_for_server(RowsError(Error(kind, message), kFiles));
}

TEST(RowsError, TellsTheServerKindFileAndLine) {
  constexpr auto kRest = ": this row or file cannot be used; the node's log says why";
  EXPECT_EQ(told("client 0 (a): /home/anna/bad.jsonl:17: the answer \"kidney\" is none of its options: hardware"),
            concat("[data] bad.jsonl:17", kRest));
  EXPECT_EQ(told("rows/ward 7.json: row 3: prompt[0] is \"x\", expected an object"),
            concat("[data] ward 7.json: row 3", kRest));
  EXPECT_EQ(told("/home/anna/bad.jsonl:2: its keys (Mrs Smith) are of no format"), concat("[data] bad.jsonl:2", kRest));
  EXPECT_EQ(told("none of the 3 rows of /home/anna/bad.jsonl can be read; the first: kidney"),
            concat("[data] bad.jsonl", kRest));
  EXPECT_EQ(told("task files: row 5 has the answer \"kidney row 77\", which is none"), concat("[data] row 5", kRest));
}

TEST(RowsError, TellsNothingElse) {
  const std::string general = " the node's own rows cannot be used; the node's log says why";
  EXPECT_EQ(told("the chat template refuses: Mrs Smith"), "[data]" + general);
  EXPECT_EQ(told("\"bad.jsonl:17\" and row 7"), "[data]" + general);
  EXPECT_EQ(told("unable to write\nframe #0: at::from_file", kInternal), "[internal]" + general);
}

TEST(RowsError, KeepsTheWholeTextForTheNode) {
  const RowsError error(Error(kData, "bad.jsonl:1: \"kidney\""), kFiles);
  EXPECT_STREQ(error.what(), "[data] bad.jsonl:1: \"kidney\"");
}

TEST(RowsError, OtherErrorsAreToldInFullButForDefects) {
  EXPECT_EQ(reason_for_server(Error(kConfig, "K is 3, agreed: 2")), "[config] K is 3, agreed: 2");
  EXPECT_EQ(reason_for_server(Error(kInternal, "frame #0")),
            "[internal] a defect of the node's program; the node's log says why");
}

}  // namespace
}  // namespace evenkeel::flower
