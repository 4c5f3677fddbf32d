"""`tandem chat`: a conversation over a service's OpenAI endpoint."""
