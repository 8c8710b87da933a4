"""Messages of KEDA's external scalers, from the .proto beside it.

Made again with `python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. external_scaler.proto` in this folder.
"""
