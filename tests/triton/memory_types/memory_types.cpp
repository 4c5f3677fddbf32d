// What the backends make of an input on a GPU: its data are an address that the host must not read.
#include "../../../images/serving/collector/round_tensors.h"

// "" where data in this memory can be read, else what the client is answered.
extern "C" const char* ReadFrom(int memory) {
  static std::string answer;
  const int32_t number = 7;
  const auto type = static_cast<TRITONSERVER_MemoryType>(memory);
  const auto* address = memory == TRITONSERVER_MEMORY_GPU ? reinterpret_cast<const void*>(16) : &number;
  const std::vector<backend::Input> inputs{{"input_ids", TRITONSERVER_TYPE_INT32, {1, 1}, {{address, 4, type, 0}}}};
  try {
    answer = *rounds::Data<int32_t>(inputs, "input_ids", 1) == number ? "" : "another number";
    rounds::Owned().Gather(inputs[0], {0});
  } catch (const backend::Failure& failure) {
    answer = failure.what();
  }
  return answer.c_str();
}
